// Checkpoints on disk: written, resharded, read again.
#include <fmt/format.h>

#include "case_input.h"
#include "shardcheck/checkpoint/folders.h"
#include "shardcheck/checkpoint/reshard_folder.h"
#include "shardcheck/checkpoint/shard_folder.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck::fuzz::targets {
namespace {

constexpr Bounds kBounds{.width = 64, .layers = 3, .ranks = 8, .elements = 1 << 15};

void require_target(const std::filesystem::path& folder, const Layout& target, const TensorMap& full) {
  const FolderDigest found = digest_folder(folder, target);
  if (found.digest != digest_of(full) || !found.disagreements.empty())
    throw Finding(
        fmt::format("the target has the digest {}, the model {}", found.digest.hex(), digest_of(full).hex()));
  if (!has_shard_record(folder)) return;
  const ShardedTensors expected = split(full, target), actual = read_shard_folder(folder, target);
  for (const auto& [name, ranks] : expected) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if (!ranks[rank].same_bytes(actual.at(name).at(rank)))
        throw Finding(fmt::format("rank {} has other bytes in {}", rank, name));
  }
}

void move_through_files(const Case& c, const Layout& source, const Layout& target) {
  const TensorMap full = make_weights(c.geometry, WeightStyle::fingerprint, c.seed, c.dtype);
  const TemporaryFolder folder(memory_folder());
  const auto from = folder.path() / "source", to = folder.path() / "target";
  write_shard_folder(from, source, split(full, source));
  const ReshardOptions options{.buffer_bytes = 4096, .max_shard_bytes = 8192};
  reshard_folder(from, source, to, target, options);
  require_target(to, target, full);
}

void check(std::string_view input) {
  const auto c = read_case(input);
  if (!c || !is_within(kBounds, *c)) return;
  std::optional<Layout> source, target;
  try {
    source = make_layout(c->source, c->geometry);
    target = make_layout(c->target, c->geometry);
    if (!keeps_bits(*source) || !keeps_bits(*target)) return;
    make_plan(*source, *target);
  } catch (const InvalidInput&) {
    return;
  } catch (const UnsupportedLayout&) {
    return;
  }
  move_through_files(*c, *source, *target);
}

std::string draw(Stream& stream) {
  Case c = drawn_within(
      kBounds, [&] { return draw_case(stream, {.forward = false, .any_dtype = true, .meshes = true}); });
  c.law = "plan_equals_gather_then_split";
  return print_case(c);
}

}  // namespace

const Target& reshard_file() {
  static const Target target{
      .name = "reshard_file",
      .claim =
          "A checkpoint that is written in one layout and resharded on disk to another "
          "is read there as the bytes that splitting the model gives.",
      .format = InputFormat::case_line,
      .max_bytes = 4096,
      .check = check,
      .draw = draw};
  return target;
}

}  // namespace shardcheck::fuzz::targets
