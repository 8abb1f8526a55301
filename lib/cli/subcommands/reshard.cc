// shardcheck reshard: a checkpoint folder from one layout to another.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <map>

#include "exit_code.h"
#include "folder_layout.h"
#include "options.h"
#include "shardcheck/checkpoint/reshard_folder.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

constexpr std::size_t kShownTensors = 10;
constexpr std::uint64_t kMaxShard = std::uint64_t{1} << 50;

struct Request {
  std::filesystem::path source, target;
  Layout source_layout, target_layout;
  ReshardOptions options;
  bool dry_run = false, verify = false, quiet = false;
};

CommandLine command_line() {
  CommandLine line(
      "reshard", "SOURCE TARGET --to=LAYOUT [OPTIONS]",
      "Writes a checkpoint in another layout, in bounded memory whatever its size: a Hugging Face\n"
      "folder or a folder of shards (rank_00000-of-00004.safetensors ... and shardcheck.json) to "
      "either.\nTARGET is created; its files get their names when all of them are whole. A run that "
      "was cut off goes\non with the same command. Every value is copied bit for bit, but for tables that "
      "store "
      "norms shifted\n(megatron-llama-zero-centered): there they are rounded, and --verify names the tensors "
      "that differ.",
      "reshard checkpoint shards --to=megatron-llama:tp4");
  return line.positional(2, "folder")
      .value(
          "from", "NAME|FILE",
          "layout of SOURCE, e.g. vllm-llama:tp2 or my.json:tp2 (default: shardcheck.json's, else hf-llama)")
      .value("to", "NAME|FILE", "layout of TARGET")
      .value("geometry", "KEY=VALUE,...",
             "shape of the model; keys stand in place of shardcheck.json's, else config.json's, else of the "
             "defaults of a case line with kv_heads=heads, head_dim=d_model/heads")
      .flag("dry-run", "print what would be done and write nothing")
      .flag("verify", "compare the digests of SOURCE and TARGET at the end")
      .value("buffer", "SIZE", "chunk assembled in memory (default 8MiB)")
      .value("max-shard-size", "SIZE", "tensors in a file of a Hugging Face folder (default 5GB)")
      .flag("restart", "forget what an unfinished run left in TARGET");
}

Request read_request(const Arguments& arguments) {
  if (arguments.positional().size() != 2)
    throw InvalidInput("reshard needs a source and a target folder; see shardcheck reshard --help");
  const auto to = arguments.text("to");
  if (!to) throw InvalidInput("reshard needs --to=LAYOUT, e.g. --to=megatron-llama:tp4");
  Request request;
  request.source = arguments.positional()[0];
  request.target = arguments.positional()[1];
  const Geometry geometry = geometry_of(request.source, arguments.text("geometry"));
  request.source_layout = layout_at("from", layout_text(request.source, arguments.text("from")), geometry);
  request.target_layout = layout_at("to", *to, geometry);
  if (const auto size = arguments.text("buffer"))
    request.options.buffer_bytes =
        parse_bytes("buffer", *size, std::uint64_t{4} << 10, std::uint64_t{1} << 30);
  if (const auto size = arguments.text("max-shard-size"))
    request.options.max_shard_bytes = parse_bytes("max-shard-size", *size, 1, kMaxShard);
  request.options.restart = arguments.flag("restart");
  request.dry_run = arguments.flag("dry-run");
  request.verify = arguments.flag("verify");
  request.quiet = arguments.common().quiet;
  return request;
}

void print_plan(const ReshardSummary& summary) {
  Table sides({{""},
               {"layout"},
               {"ranks", Align::right},
               {"files", Align::right},
               {"tensors", Align::right},
               {"bytes", Align::right}});
  const auto add = [&sides](const char* what, const ReshardSummary::Side& side) {
    sides.row({what, side.layout, format_count(side.ranks), format_count(side.files),
               format_count(side.tensors), format_count(static_cast<std::int64_t>(side.bytes))});
  };
  add("source", summary.source);
  add("target", summary.target);
  print(sides.text());
  Table plan({{"plan"}, {""}});
  plan.row({"copies", format_count(summary.copies)});
  plan.row({"bytes copied", format_count(static_cast<std::int64_t>(summary.bytes_copied))});
  plan.row({"elements", fmt::format("{}, lower bound {}", format_count(summary.elements_copied),
                                    format_count(summary.elements_bound))});
  plan.row({"peak memory", format_bytes(summary.memory_bytes) + " of buffer, mapped pages and plan"});
  print(plan.text());
}

/// "'final_norm', 'layers.0.attn_norm', 'layers.0.ffn_norm' and 6 more".
std::string shown_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", printable(names[i]));
  return names.size() > kShown ? text + fmt::format(" and {} more", names.size() - kShown) : text;
}

std::map<std::string, float> shifts_of(const Layout& layout) {
  std::map<std::string, float> shifts;
  for (const LayoutEntry& entry : layout.entries)
    for (const LogicalTensor& part : entry.parts) shifts.emplace(part.name, entry.arrangement().shift);
  return shifts;
}

/// Values that are stored shifted are rounded: what was read there need not come back.
void print_rounded(const Request& request) {
  const std::map<std::string, float> source = shifts_of(request.source_layout);
  const std::map<std::string, float> target = shifts_of(request.target_layout);
  std::vector<std::string> names;
  float shift = 0;
  for (const auto& [name, to] : target) {
    if (source.at(name) == to) continue;
    names.push_back(name);
    shift = to - source.at(name);
  }
  if (names.empty()) return;
  print_line(fmt::format(
      "{}  {} {} stored {} {:g} and rounded to their dtype; another layout may not get "
      "the same values back: {}",
      paint(Tone::doubtful, "rounded"), format_noun(std::ssize(names), "tensor"),
      names.size() == 1 ? "is" : "are", shift < 0 ? "minus" : "plus", std::abs(shift), shown_names(names)));
}

void print_summary(const Request& request, const ReshardSummary& summary) {
  print_plan(summary);
  for (const std::string& text : summary.warnings)
    print_line(fmt::format("{}  {}", paint(Tone::doubtful, "warning"), printable(text)));
  print_rounded(request);
}

/// Names of the tensors whose digests are not the same.
std::vector<std::string> differing(const FolderDigest& source, const FolderDigest& target) {
  std::vector<std::string> names;
  for (const auto& [name, digest] : source.by_tensor) {
    const auto other = target.by_tensor.find(name);
    if (other == target.by_tensor.end() || other->second != digest) names.push_back(name);
  }
  return names;
}

/// Whether source and target have one digest, said in a line.
bool verify_digests(const Request& request, Progress& progress) {
  const FolderDigest source = digest_folder(request.source, request.source_layout, progress.sink("source: "));
  const FolderDigest target = digest_folder(request.target, request.target_layout, progress.sink("target: "));
  for (const FolderDigest* side : {&source, &target})
    for (const std::string& text : side->disagreements)
      print_line(fmt::format("  {}  {}", paint(Tone::bad, "differs"), printable(text)));
  const std::vector<std::string> names = differing(source, target);
  for (std::size_t i = 0; i < std::min(kShownTensors, names.size()); ++i)
    print_line(fmt::format("  {}  {}: the values in the target are not those of the source",
                           paint(Tone::bad, "differs"), printable(names[i])));
  if (names.size() > kShownTensors)
    print_line(fmt::format("  {}  {} more", paint(Tone::bad, "differs"),
                           format_noun(static_cast<std::int64_t>(names.size() - kShownTensors), "tensor")));
  const bool equal =
      source.disagreements.empty() && target.disagreements.empty() && source.digest == target.digest;
  print_line(fmt::format("  digest of the source  {}\n  digest of the target  {}", source.digest.hex(),
                         target.digest.hex()));
  return equal;
}

int run_checked(const std::vector<std::string>& words) {
  const auto start = std::chrono::steady_clock::now();
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  Request request = read_request(*arguments);
  if (request.dry_run) {
    const ReshardSummary summary = describe_reshard(request.source, request.source_layout, request.target,
                                                    request.target_layout, request.options);
    if (!request.quiet) print_summary(request, summary);
    print_line(fmt::format("{}  {} would be written to {}", paint(Tone::good, "PLANNED"),
                           format_bytes(summary.target.bytes), format_noun(summary.target.files, "file")));
    return kPassed;
  }
  Progress progress(request.quiet);
  request.options.progress = progress.sink();
  const ReshardSummary summary = reshard_folder(request.source, request.source_layout, request.target,
                                                request.target_layout, request.options);
  if (!request.quiet) print_summary(request, summary);
  const bool holds = !request.verify || verify_digests(request, progress);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string resumed =
      summary.bytes_resumed == 0 ? "" : fmt::format(", {} of it before", format_bytes(summary.bytes_resumed));
  print_line(fmt::format("{}  {} to {}: {} in {}{}{}   {}",
                         holds ? paint(Tone::good, "RESHARDED") : paint(Tone::bad, "FAILED"),
                         summary.source.layout, summary.target.layout, format_bytes(summary.target.bytes),
                         format_noun(summary.target.files, "file"), resumed,
                         !request.verify ? ""
                         : holds         ? ", digests equal"
                                         : ", digests differ",
                         format_seconds(seconds)));
  return holds ? kPassed : kFailed;
}

/// Copies that differ are a finding about the data, as in `digest`.
int run(const std::vector<std::string>& words) {
  try {
    return run_checked(words);
  } catch (const DivergentCopies& error) {
    print_line(fmt::format("  {}  {}\n{}  copies in the source disagree; nothing was written",
                           paint(Tone::bad, "differs"), printable(error.what()), paint(Tone::bad, "FAILED")));
    return kFailed;
  }
}

}  // namespace

const Subcommand& reshard() {
  static const Subcommand command{"reshard", "a checkpoint folder from one layout to another", run};
  return command;
}

}  // namespace shardcheck::subcommands
