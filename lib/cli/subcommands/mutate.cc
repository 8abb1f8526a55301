// shardcheck mutate: shards with one known fault, for users who test their own checks.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "exit_code.h"
#include "folded_names.h"
#include "folder_layout.h"
#include "geometry_option.h"
#include "options.h"
#include "outputs.h"
#include "report_json.h"
#include "shardcheck/checkpoint/shard_folder.h"
#include "shardcheck/layout/layout_text.h"
#include "shardcheck/mutators/delivery.h"
#include "shardcheck/text/shell_quote.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

CommandLine command_line() {
  CommandLine line(
      "mutate", "--fault=NAME[:ARGUMENT] --out=DIR --tp=N [OPTIONS]",
      "Writes shards with one known fault, to test a check of your own: shapes, dtypes and shardcheck.json "
      "are those "
      "of\nright shards, and nothing in the folder tells of the fault. What it is goes to stdout and to "
      "--report. "
      "Refused are\nfaults of the forward pass and of collectives, whose shards are right, and faults that "
      "cannot act "
      "here.\nshardcheck list names the faults; shardcheck verify must fail on the folder, shardcheck "
      "explain name the "
      "fault.",
      "mutate --fault=slice_fused_qkv_contiguously --fingerprint --layout=seed --tp=2 --out=faulty");
  line.value("fault", "NAME[:ARGUMENT]", "the fault")
      .value("out", "DIR", "where to write; a new or an empty folder")
      .value("source", "DIR", "a checkpoint's weights: a Hugging Face folder or shards")
      .value("geometry", "KEY=VALUE,...",
             "random weights of this model instead (default: the seed document's TOY)")
      .flag("fingerprint", "weights whose bits say where they belong, of --source's model or of --geometry")
      .value("dtype", "NAME", "f32 (default), bf16 or f16, without --source")
      .value("layout", "NAME", "built-in layout table (default vllm-llama)")
      .value("tp", "N", "degree")
      .value("to", "NAME[:AXES]", "short for --layout and --tp, and for meshes of several axes")
      .value("from", "NAME[:AXES]",
             "layout that the weights are moved from (default: the table of the target on one rank)")
      .seed()
      .reports("docs/mutate_report.schema.json");
  return line;
}

/// Everything before the first byte is written.
struct Request {
  FaultChoice fault;
  fs::path out;
  std::optional<fs::path> source;
  bool fingerprint = false;
  Case value;
  TensorMap weights;
};

LayoutName target_of(const Arguments& arguments) {
  const auto to = arguments.text("to");
  if (to && (arguments.text("layout") || arguments.text("tp")))
    throw InvalidInput(fmt::format("--to={}: allowed without --layout and --tp", *to));
  if (to) return parse_layout_name(*to);
  const auto tp = arguments.integer("tp", 1, Mesh::kMaxDegree);
  if (!tp) throw InvalidInput("mutate needs --tp=N or --to=NAME:AXES");
  return parse_layout_name(fmt::format("{}:tp{}", arguments.text("layout").value_or("vllm-llama"), *tp));
}

std::string required(const Arguments& arguments, const char* option) {
  const auto text = arguments.text(option);
  if (!text) throw InvalidInput(fmt::format("mutate needs --{}; see shardcheck mutate --help", option));
  return *text;
}

void take_weights(const Arguments& arguments, Request& request) {
  if (request.source) {
    for (const char* option : {"geometry", "dtype"})
      if (arguments.text(option)) throw InvalidInput(fmt::format("--{}: allowed without --source", option));
    Checkpoint checkpoint = load_source(*request.source, {});
    request.value.geometry = checkpoint.config.geometry;
    request.value.dtype = checkpoint.dtype;
    request.weights = std::move(checkpoint.logical);
    if (!request.fingerprint) return;
  } else {
    const auto geometry = arguments.text("geometry");
    request.value.geometry = geometry ? parse_geometry(*geometry) : toy();
    request.value.dtype =
        *dtype_from_short_name(arguments.choice("dtype", {"f32", "bf16", "f16"}).value_or("f32"));
  }
  const WeightStyle style = request.fingerprint ? WeightStyle::fingerprint : request.value.weights;
  request.weights = make_weights(request.value.geometry, style, request.value.seed, request.value.dtype);
}

Request request_of(const Arguments& arguments) {
  Request request;
  request.fault = parse_fault(required(arguments, "fault"));
  request.out = fs::absolute(fs::path(required(arguments, "out")) / "").lexically_normal().parent_path();
  if (const auto source = arguments.text("source")) request.source = *source;
  request.fingerprint = arguments.flag("fingerprint");
  request.value.target = target_of(arguments);
  LayoutTable::built_in(request.value.target.table);
  request.value.source = LayoutName{request.value.target.table, {}};
  if (const auto from = arguments.text("from")) request.value.source = parse_layout_name(*from);
  request.value.seed = arguments.seed();
  take_weights(arguments, request);
  return request;
}

void require_free(const fs::path& out) {
  std::error_code error;
  if (!fs::exists(out, error) && !error) return;
  if (!error && fs::is_directory(out, error) && fs::is_empty(out, error)) return;
  throw InvalidInput(fmt::format("--out={}: something is there{}; allowed: a new or an empty folder",
                                 out.string(), error ? " (" + error.message() + ")" : ""));
}

/// All or nothing: the folder appears under its name when it is whole.
void write_whole(const fs::path& out, const Layout& layout, const ShardedTensors& shards) {
  const fs::path unfinished = out.parent_path() / fmt::format(".{}.{}", out.filename().string(), getpid());
  try {
    write_shard_folder(unfinished, layout, shards);
    fs::rename(unfinished, out);
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    if (dynamic_cast<const fs::filesystem_error*>(&error) == nullptr) throw;
    throw IoError(fmt::format("{}: cannot be written: {}", out.string(), error.what()));
  }
}

std::string explain_command(const Request& request) {
  std::string command = fmt::format("{} explain {}", program_name(), shell_quote(request.out.string()));
  if (request.source && !request.fingerprint) command += " --source=" + shell_quote(request.source->string());
  if (!request.source && !request.fingerprint) command += " --source=CHECKPOINT";
  if (request.value.seed != 0) command += fmt::format(" --seed={}", request.value.seed);
  return command;
}

std::string weights_text(const Request& request) {
  if (request.fingerprint) return "fingerprints";
  return request.source ? request.source->string() : fmt::format("random, seed {}", request.value.seed);
}

/// Parameters that the same ranks hold wrongly, those of several layers together.
void print_touched(const Layout& layout, const std::vector<ShardPlace>& touched) {
  std::map<std::int64_t, std::vector<int>> ranks;
  for (const ShardPlace& place : touched) ranks[place.entry].push_back(place.rank);
  std::vector<std::pair<std::vector<std::int64_t>, std::vector<int>>> groups;
  for (const auto& touched_entry : ranks) {
    const std::int64_t entry = touched_entry.first;
    const std::vector<int>& wrong = touched_entry.second;
    const std::string pattern = name_pattern(layout.entries[static_cast<std::size_t>(entry)]);
    const auto same = std::ranges::find_if(groups, [&](const auto& group) {
      return group.second == wrong &&
             name_pattern(layout.entries[static_cast<std::size_t>(group.first.front())]) == pattern;
    });
    if (same == groups.end()) {
      groups.push_back({{entry}, wrong});
    } else {
      same->first.push_back(entry);
    }
  }
  Table table({{"parameter"}, {"ranks"}});
  for (const auto& [entries, wrong] : groups)
    table.row({printable(folded_name(layout, entries)), ranges_text(wrong)});
  print(table.text());
}

void print_mutation(const Request& request, const Layout& layout, const Delivery& delivery) {
  const Fault& fault = *request.fault.fault;
  Table table({{"fault"}, {request.fault.text()}});
  table.row({"claim", std::string(fault.claim)});
  table.row({"family", fmt::format("{} {}, of the {} level", fault.family, family_name(fault.family),
                                   to_string(fault.level))});
  table.row({"weights", fmt::format("{}, {}", weights_text(request), short_name(request.value.dtype))});
  table.row({"model", to_string(request.value.geometry)});
  table.row({"layout", fmt::format("{} from {}", to_string(layout.name), to_string(request.value.source))});
  print(table.text());
  print_section("Wrong shards", fmt::format("{}", delivery.touched.size()));
  print_touched(layout, delivery.touched);
  print_line(fmt::format("\nwritten to {}", request.out.string()));
  print_line(paint(Tone::faint, "what is wrong with it: " + explain_command(request)));
}

std::string report_json(const Request& request, const Layout& layout, const Delivery& delivery,
                        const std::vector<std::string>& words) {
  const Fault& fault = *request.fault.fault;
  ordered_json touched = ordered_json::array();
  for (const ShardPlace& place : delivery.touched) {
    touched.push_back(
        {{"parameter", layout.entries[static_cast<std::size_t>(place.entry)].name}, {"rank", place.rank}});
  }
  const ordered_json report = {{"format", kReportFormat},
                               {"version", SHARDCHECK_VERSION},
                               {"commit", build_commit()},
                               {"command", "mutate"},
                               {"arguments", words},
                               {"fault", request.fault.text()},
                               {"family", std::string(1, fault.family)},
                               {"level", to_string(fault.level)},
                               {"claim", fault.claim},
                               {"reports", fault.reports},
                               {"layout", to_string(layout.name)},
                               {"source_layout", to_string(request.value.source)},
                               {"geometry", to_string(request.value.geometry)},
                               {"dtype", short_name(request.value.dtype)},
                               {"weights", weights_text(request)},
                               {"seed", request.value.seed},
                               {"out", request.out.string()},
                               {"touched", std::move(touched)},
                               {"exit_code", kPassed}};
  return report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

int run(const std::vector<std::string>& words) {
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  const Request request = request_of(*arguments);
  require_free(request.out);
  if (request.source) require_no_input_among("--report", arguments->common().json_reports, {*request.source});
  const Layout layout = make_layout(request.value.target, request.value.geometry);
  const Delivery delivery = deliver(request.fault, request.value, request.weights);
  write_whole(request.out, layout, delivery.faulty);
  if (!arguments->common().quiet) print_mutation(request, layout, delivery);
  for (const auto& file : arguments->common().json_reports)
    write_text_atomically(file, report_json(request, layout, delivery, words));
  return kPassed;
}

}  // namespace

const Subcommand& mutate() {
  static const Subcommand command{"mutate", "write shards with a known fault, to test a check of your own",
                                  run};
  return command;
}

}  // namespace shardcheck::subcommands
