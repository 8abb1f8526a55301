// shardcheck layouts: the layout tables, what ranks hold under one, and which of them fit a folder.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "exit_code.h"
#include "folder_layout.h"
#include "geometry_option.h"
#include "layout_source.h"
#include "options.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/layout/layout_text.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

CommandLine command_line() {
  CommandLine line(
      "layouts", "list | show NAME[:AXES] [OPTIONS] | show FILE.json[:AXES] [OPTIONS] | match DIR [OPTIONS]",
      "The layout tables. list names them with the axes of their meshes. show prints each "
      "parameter once per\n"
      "distinct shape, what each rank holds in indices of the logical tensors, and a map of the "
      "rows of fused\n"
      "tensors. match ranks the tables that fit the names and shapes of a folder of "
      "safetensors, best first,\n"
      "names the keys of the model that these do not determine, and exits with 1 when no table fits.",
      "layouts show megatron-llama:tp2");
  line.positional(2, "argument")
      .value("table", "FILE", "of match: a layout table of your own, tried with the others")
      .value("geometry", "KEY=VALUE,...",
             "of show: fields of the model, as d_model layers heads kv_heads head_dim ffn vocab, in place of "
             "--config's, else of those of a small model of the table's family")
      .value("config", "DIR", "of show: the model of DIR/config.json")
      .value("mesh", "AXES",
             "of match: the mesh of the files, as pp2,tp4 (default: what shardcheck.json says, "
             "else tp over the files that hold the same tensors)");
  return line;
}

std::string axes_text(const LayoutTable& table) {
  std::vector<std::string> names;
  for (const Axis axis : table.axes()) names.emplace_back(to_string(axis));
  return join(names, " ");
}

std::optional<LayoutTable> own_table(const Arguments& arguments) {
  if (const auto file = arguments.text("table")) return LayoutTable::load(*file);
  return std::nullopt;
}

int list_tables(const Arguments&) {
  Table table({{"layout"}, {"framework"}, {"family"}, {"executed as"}, {"mesh axes"}});
  for (const std::string& name : LayoutTable::built_in_names()) {
    const LayoutTable& one = LayoutTable::built_in(name);
    table.row({name, one.framework(), one.family(), one.consumer(), axes_text(one)});
    if (!one.description().empty()) table.note(Cell("  " + one.description(), Tone::faint));
  }
  print(table.text());
  return kPassed;
}

/// Names of a user's table may hold anything.
void print_lines(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) print_line(printable(line));
}

Geometry geometry_of(const Arguments& arguments, const LayoutTable& table) {
  Geometry geometry = example_geometry(table);
  if (const auto folder = arguments.text("config")) {
    const std::filesystem::path file = std::filesystem::path(*folder) / "config.json";
    geometry = parse_config(read_text(file, kMaxConfigBytes), file.string()).geometry;
  }
  const auto text = arguments.text("geometry");
  return text ? parse_geometry(*text, geometry) : geometry;
}

int show_table(const Arguments& arguments) {
  if (arguments.positional().size() < 2)
    throw InvalidInput("layouts show needs NAME[:AXES]; see layouts list");
  const auto [source, axes] = split_layout(arguments.positional()[1]);
  const LayoutTable table = is_table_file(source) ? LayoutTable::load(source) : LayoutTable::built_in(source);
  const LayoutName name = parse_layout_name(table.name() + axes);
  const Layout layout = table.instantiate(geometry_of(arguments, table), name);
  print_section(to_string(layout.name), fmt::format("{}, {}, {}", table.framework(), table.family(),
                                                    format_noun(layout.degree, "rank")));
  if (!table.description().empty()) print_line(paint(Tone::faint, table.description()));
  print_line(paint(Tone::faint, to_string(layout.geometry)));
  if (table.local_numbers() && layout.mesh.degree(Axis::pp) * layout.mesh.degree(table.expert_axis()) > 1) {
    print_line(paint(Tone::faint, "files count the layers of a stage and the experts of a rank from 0"));
  }
  print_line();
  print_lines(layout_text(table, layout));
  return kPassed;
}

LayoutName mesh_of(const Arguments& arguments, const TensorFolder& folder) {
  const auto text = arguments.text("mesh");
  if (!text) return folder.recorded.value_or(LayoutName{});
  try {
    return parse_layout_name("mesh:" + *text);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--mesh='{}': {}", *text, error.what()));
  }
}

std::vector<TableMatch> matches_of(const Arguments& arguments, const TensorFolder& folder) {
  const LayoutName mesh = mesh_of(arguments, folder);
  const std::vector<FileTensors> ranks = join_files(folder.files, mesh.mesh().size());
  std::vector<TableMatch> matches;
  for (const std::string& name : LayoutTable::built_in_names()) {
    matches.push_back(match_table(LayoutTable::built_in(name), ranks, mesh, folder.geometry));
  }
  if (const auto own = own_table(arguments))
    matches.push_back(match_table(*own, ranks, mesh, folder.geometry));
  sort_matches(matches);
  // Tables that share names and shapes differ in what shardcheck.json says alone.
  std::stable_partition(matches.begin(), matches.end(), [&](const TableMatch& match) {
    return match.fits() && folder.recorded && match.layout == *folder.recorded;
  });
  return matches;
}

int match_folder(const Arguments& arguments) {
  if (arguments.positional().size() < 2) throw InvalidInput("layouts match needs DIR");
  const TensorFolder folder = read_tensor_folder(arguments.positional()[1]);
  const std::vector<TableMatch> matches = matches_of(arguments, folder);
  Table table({{"layout"},
               {"fits"},
               {"match", Align::right},
               {"missing", Align::right},
               {"extra", Align::right},
               {"other shape", Align::right}});
  for (const TableMatch& match : matches) {
    if (match.matched == 0) continue;
    const auto count = [](std::size_t n) { return fmt::to_string(n); };
    table.row({to_string(match.layout), match.fits() ? Cell("yes", Tone::good) : Cell("no", Tone::bad),
               count(match.matched), count(match.missing), count(match.extra), count(match.misshapen)});
    if (!match.fits()) table.note(Cell("  " + printable(match.problem), Tone::faint));
  }
  const TableMatch& best = matches.front();
  if (best.matched > 0) {
    print(table.text());
    print_line(
        fmt::format("geometry from {}: {}", printable(folder.geometry_source), to_string(*best.geometry)));
    if (!best.guessed.empty()) {
      print_line(fmt::format("guessed: {} (these files do not determine them)", join(best.guessed, " ")));
    }
  }
  if (best.fits()) return kPassed;
  print_line(best.matched > 0 ? "no table fits" : "no table fits: " + printable(best.problem));
  return kFailed;
}

int run(const std::vector<std::string>& words) {
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  const std::vector<std::pair<std::string, int (*)(const Arguments&)>> actions = {
      {"list", list_tables}, {"show", show_table}, {"match", match_folder}};
  std::vector<std::string> names;
  for (const auto& [name, action] : actions) names.push_back(name);
  if (arguments->positional().empty()) {
    throw InvalidInput(fmt::format("layouts needs one of: {}", join(names, " ")));
  }
  for (const auto& [name, action] : actions) {
    if (arguments->positional().front() == name) return action(*arguments);
  }
  refuse_unknown("layouts action", arguments->positional().front(), names);
}

}  // namespace

const Subcommand& layouts() {
  static const Subcommand command{"layouts", "the layout tables: list, show what ranks hold, match a folder",
                                  run};
  return command;
}

}  // namespace shardcheck::subcommands
