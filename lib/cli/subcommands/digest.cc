// shardcheck digest: one number for a checkpoint's weights, whatever their layout.
#include <fmt/format.h>

#include <chrono>

#include "exit_code.h"
#include "folder_layout.h"
#include "options.h"
#include "shardcheck/checkpoint/reshard_folder.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

constexpr std::size_t kShown = 10;

CommandLine command_line() {
  CommandLine line(
      "digest", "FOLDER [OPTIONS]",
      "The digest of a Hugging Face folder or a folder of shards: the same for every layout of the "
      "same\nweights. Replicas and tied copies must agree and padding must be zero. The last line is "
      "32\nhexadecimal digits. A table that stores norms shifted (megatron-llama-zero-centered) has rounded "
      "them:\nits digest is that of the rounded values.",
      "digest shards --layout=megatron-llama:tp4");
  return line.positional(1, "folder")
      .value("layout", "NAME|FILE", "layout of the files (default: shardcheck.json's, else hf-llama)")
      .value("geometry", "KEY=VALUE,...",
             "shape of the model; keys stand in place of shardcheck.json's, else config.json's, else of the "
             "defaults of a case line with kv_heads=heads, head_dim=d_model/heads");
}

int run(const std::vector<std::string>& words) {
  const auto start = std::chrono::steady_clock::now();
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  if (arguments->positional().empty())
    throw InvalidInput("digest needs a checkpoint folder; see shardcheck digest --help");
  const bool quiet = arguments->common().quiet;
  const std::filesystem::path folder = arguments->positional()[0];
  const Layout layout = layout_at("layout", layout_text(folder, arguments->text("layout")),
                                  geometry_of(folder, arguments->text("geometry")));
  Progress progress(quiet);
  const FolderDigest found = digest_folder(folder, layout, progress.sink());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!quiet) {
    print_line(fmt::format("{}: {}, {}, {}, {}", folder.string(), to_string(layout.name),
                           format_noun(found.tensors, "logical tensor"), format_bytes(found.bytes),
                           format_seconds(seconds)));
  }
  for (std::size_t i = 0; i < std::min(kShown, found.disagreements.size()); ++i)
    print_line(fmt::format("  {}  {}", paint(Tone::bad, "differs"), printable(found.disagreements[i])));
  if (!found.disagreements.empty()) {
    print_line(fmt::format("{}  {}: these files have no digest", paint(Tone::bad, "FAILED"),
                           format_noun(std::ssize(found.disagreements), "disagreement")));
    return kFailed;
  }
  print_line(found.digest.hex());
  return kPassed;
}

}  // namespace

const Subcommand& digest() {
  static const Subcommand command{"digest", "one number for a checkpoint's weights, whatever their layout",
                                  run};
  return command;
}

}  // namespace shardcheck::subcommands
