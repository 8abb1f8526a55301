#include "shardcheck/checkpoint/reshard_folder.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <memory>

#include "checkpoint/carried_config.h"
#include "checkpoint/carried_files.h"
#include "checkpoint/digest_walk.h"
#include "checkpoint/reshard_executor.h"
#include "checkpoint/reshard_workspace.h"
#include "checkpoint/source_folder.h"
#include "checkpoint/target_files.h"
#include "shardcheck/reshard/reshard.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMinBuffer = std::uint64_t{4} << 10, kMaxBuffer = std::uint64_t{1} << 30;

void require_options(const ReshardOptions& options) {
  if (options.buffer_bytes < kMinBuffer || options.buffer_bytes > kMaxBuffer) {
    throw InvalidInput(
        fmt::format("a buffer of {} bytes; allowed: {} to {}", options.buffer_bytes, kMinBuffer, kMaxBuffer));
  }
}

/// dtype of every entry of the target: that of the logical tensors in it.
std::vector<DType> target_dtypes(const SourceFolder& folder, const Layout& source, const Layout& target) {
  std::map<std::string_view, DType> logical;
  for (std::size_t e = 0; e < source.entries.size(); ++e) {
    for (const LogicalTensor& part : source.entries[e].parts) logical.emplace(part.name, folder.dtype(e));
  }
  std::vector<DType> dtypes;
  for (const LayoutEntry& entry : target.entries) {
    const DType dtype = dtypes.emplace_back(logical.at(entry.parts.front().name));
    for (const LogicalTensor& part : entry.parts) {
      if (logical.at(part.name) == dtype) continue;
      throw InvalidShards(fmt::format("{}: {}: '{}' is {}, '{}' is {}: they cannot share a tensor",
                                      folder.path().string(), entry.name, entry.parts.front().name,
                                      short_name(dtype), part.name, short_name(logical.at(part.name))));
    }
  }
  return dtypes;
}

/// A plan over two folders, before anything is written.
class FolderPlan {
 public:
  FolderPlan(const fs::path& source, const Layout& source_layout, const Layout& target_layout,
             const ReshardOptions& options)
      : source_layout_(source_layout),
        target_layout_(target_layout),
        options_(options),
        source_((require_options(options), source), source_layout),
        plan_(make_plan(source_layout, target_layout)),
        targets_(target_layout, target_dtypes(source_, source_layout, target_layout),
                 options.max_shard_bytes) {
    if (is_hugging_face_target(target_layout)) require_config_of(source, target_layout);
    std::sort(plan_.copies.begin(), plan_.copies.end(), [](const Copy& a, const Copy& b) {
      return std::tie(a.target_entry, a.target_rank, a.target_origin) <
             std::tie(b.target_entry, b.target_rank, b.target_origin);
    });
  }

  const SourceFolder& source() const { return source_; }
  const TargetFiles& targets() const { return targets_; }
  ReshardExecutor::Input executor_input() const {
    return {source_layout_, target_layout_, source_, targets_, plan_.copies, options_.buffer_bytes};
  }

  ReshardSummary summary() const {
    ReshardSummary summary;
    summary.source = side(source_layout_);
    summary.target = side(target_layout_);
    summary.source.files = std::ssize(source_.files());
    for (const MappedFile& file : source_.files()) summary.source.bytes += file.identity.size_bytes;
    summary.target.files = std::ssize(targets_.files());
    summary.target.bytes = targets_.total_bytes();
    if (is_hugging_face_target(target_layout_)) {
      if (auto warning = config_warning(source_.path(), target_layout_); !warning.empty())
        summary.warnings.push_back(std::move(warning));
    }
    summary.copies = std::ssize(plan_.copies);
    for (const Copy& copy : plan_.copies)
      summary.bytes_copied += bytes_of(copy.elements(), copy.target_entry);
    summary.elements_copied = plan_.elements_moved;
    summary.elements_bound = plan_bound(source_layout_, target_layout_).elements;
    summary.memory_bytes = options_.buffer_bytes + kWindowBytes + plan_.copies.capacity() * sizeof(Copy);
    return summary;
  }

  ReshardTarget at(const fs::path& target) const {
    return {target,
            targets_,
            {hash(), source_.identities(), {}, false},
            carried_files_in(source_.path()),
            options_.restart};
  }

 private:
  /// Of everything that decides where a byte goes.
  std::uint64_t hash() const {
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
    XXH3_64bits_reset(state.get());
    const auto add = [&](const auto& value) { XXH3_64bits_update(state.get(), &value, sizeof(value)); };
    const auto add_text = [&](const std::string& text) {
      add(text.size());
      XXH3_64bits_update(state.get(), text.data(), text.size());
    };
    add_text(to_string(source_layout_.name));
    add_text(to_string(target_layout_.name));
    add_text(to_string(target_layout_.geometry));
    for (std::size_t file = 0; file < targets_.files().size(); ++file) {
      add_text(targets_.files()[file].name);
      add_text(targets_.start_of(file));
    }
    for (const Copy& copy : plan_.copies) {
      add(std::array{copy.source_entry, copy.source_rank, copy.target_entry, copy.target_rank});
      add(copy.size);
      add(copy.target_origin);
      add(copy.source_origin);
      add(copy.source_dim);
      add(copy.shift);
    }
    return XXH3_64bits_digest(state.get());
  }

  static ReshardSummary::Side side(const Layout& layout) {
    ReshardSummary::Side side;
    side.layout = to_string(layout.name);
    side.ranks = layout.degree;
    for (const LayoutEntry& entry : layout.entries) side.tensors += std::ssize(entry.placed.holders());
    return side;
  }

  std::uint64_t bytes_of(std::int64_t elements, std::int32_t entry) const {
    return static_cast<std::uint64_t>(elements * size_bits(targets_.dtype(static_cast<std::size_t>(entry)))) /
           8;
  }

  const Layout& source_layout_;
  const Layout& target_layout_;
  const ReshardOptions& options_;
  SourceFolder source_;
  Plan plan_;
  TargetFiles targets_;
};

}  // namespace

ReshardSummary describe_reshard(const fs::path& source, const Layout& source_layout,
                                const Layout& target_layout, const ReshardOptions& options) {
  return FolderPlan(source, source_layout, target_layout, options).summary();
}

ReshardSummary describe_reshard(const fs::path& source, const Layout& source_layout, const fs::path& target,
                                const Layout& target_layout, const ReshardOptions& options) {
  const FolderPlan plan(source, source_layout, target_layout, options);
  plan.at(target).require_usable();
  return plan.summary();
}

ReshardSummary reshard_folder(const fs::path& source, const Layout& source_layout, const fs::path& target,
                              const Layout& target_layout, const ReshardOptions& options) {
  const FolderPlan plan(source, source_layout, target_layout, options);
  require_agreement(plan.source(), source_layout, options.progress);
  const ReshardTarget at = plan.at(target);
  ReshardWorkspace workspace(at, options);
  workspace.begin(source);
  ReshardSummary summary = plan.summary();
  summary.bytes_resumed = workspace.bytes_done(target_layout);
  if (!workspace.is_complete()) {
    OpenFiles files(workspace.path(), plan.targets().files());
    ReshardExecutor executor(plan.executor_input(), files);
    executor.run(workspace.position(), [&](const ReshardPosition& position, std::uint64_t written) {
      workspace.advance(position, written, files, target_layout);
    });
    workspace.complete(files, target_layout);
  }
  workspace.publish();
  return summary;
}

}  // namespace shardcheck
