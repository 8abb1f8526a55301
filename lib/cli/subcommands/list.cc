// shardcheck list: what there is, with one claim each.
#include <fmt/format.h>

#include <functional>
#include <utility>

#include "exit_code.h"
#include "fault_classes_page.h"
#include "options.h"
#include "outputs.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/mutators/public_reports.h"
#include "shardcheck/properties/law.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

std::string laws() {
  Table table({{"law"}, {"claim"}});
  for (const Law* law : all_laws()) table.row({std::string(law->name), std::string(law->claim)});
  return table.text();
}

std::string oracle_names(const Fault& fault) {
  std::vector<std::string> names;
  for (const Oracle oracle : {Oracle::layout, Oracle::exact, Oracle::tree, Oracle::native}) {
    if (fault.expects(oracle)) names.emplace_back(to_string(oracle));
  }
  if (!fault.law.empty()) names.push_back("the law " + std::string(fault.law));
  return join(names, " ");
}

std::string faults() {
  Table table({{"fault"}, {"family"}, {"acts on"}, {"seen by"}, {"arguments"}});
  for (const Fault* fault : all_faults()) {
    const std::vector<std::string> arguments(fault->arguments.begin(), fault->arguments.end());
    table.row({std::string(fault->name), fmt::format("{} {}", fault->family, family_name(fault->family)),
               std::string(to_string(fault->level)), oracle_names(*fault), join(arguments, " ")});
    table.note(Cell("  " + std::string(fault->claim), Tone::faint));
  }
  return table.text();
}

std::string names_of(const std::vector<const Fault*>& faults) {
  std::vector<std::string> names;
  for (const Fault* fault : faults) names.emplace_back(fault->name);
  return join(names, " ");
}

std::string classes() {
  Table table({{"class"}, {"what"}, {"faults"}});
  for (const FaultClass& one : fault_classes())
    table.row({one.code, one.what, names_of(faults_of_class(one.code))});
  return table.text();
}

std::string reports() {
  Table table({{"report"}, {"thread"}, {"class"}, {"effect"}, {"faults"}});
  for (const PublicReport& report : public_reports()) {
    table.row({report.id, report.thread, report.fault_class, std::string(to_string(report.effect)),
               names_of(faults_of_report(report.id))});
    table.note(Cell("  " + report.mechanism, Tone::faint));
  }
  return table.text();
}

std::string layouts() {
  Table table({{"layout"}, {"framework"}, {"family"}, {"executed as"}});
  for (const std::string& name : LayoutTable::built_in_names()) {
    const LayoutTable& layout = LayoutTable::built_in(name);
    table.row({name, layout.framework(), layout.family(), layout.consumer()});
  }
  return table.text();
}

std::string oracles() {
  Table table({{"oracle"}, {"equality"}, {"sees"}, {"cannot see"}});
  table.row({"layout", "bytes of every shard, on weights that encode their own index",
             "any misplaced element", "wrong collectives, wrong execution"});
  table.row({"exact", "logits bit for bit, correctly rounded sums in any order",
             "any change that survives rounding", "unused weights, relabels that keep the function"});
  table.row({"tree", "logits bit for bit, one fixed reduction tree",
             "any change that reaches a logit, any change of reduction order", "unused weights"});
  table.row({"native", "logits within a measured floor", "layout bugs above the floor, the way engines run",
             "bugs smaller than the noise of the reduction order"});
  return table.text();
}

std::string keys() {
  Table table({{"key of a case line"}, {"allowed"}, {"default"}});
  for (const CaseKey& key : case_keys()) table.row({key.key, key.allowed, key.default_value});
  return table.text();
}

std::string targets() {
  Table table({{"SIMD target"}, {"use"}});
  const std::vector<std::string> names = simd_targets();
  for (std::size_t i = 0; i < names.size(); ++i) table.row({names[i], i == 0 ? "used" : "available"});
  return table.text();
}

const std::vector<std::pair<std::string, std::function<std::string()>>> kTopics = {
    {"laws", laws},       {"faults", faults},   {"classes", classes}, {"reports", reports},
    {"layouts", layouts}, {"oracles", oracles}, {"keys", keys},       {"targets", targets}};

int run(const std::vector<std::string>& words) {
  CommandLine line("list", "[laws | faults | classes | reports | layouts | oracles | keys | targets]",
                   "Lists what the program knows, with one claim each.", "list faults");
  const auto arguments =
      line.value("markdown", "FILE", "of classes: writes the page docs/fault-classes.md of this repository")
          .positional(1, "topic")
          .parse(words);
  if (!arguments) return kPassed;
  std::vector<std::string> names;
  for (const auto& [name, text] : kTopics) names.push_back(name);
  const std::string wanted = arguments->positional().empty() ? "" : arguments->positional()[0];
  if (!wanted.empty() && std::find(names.begin(), names.end(), wanted) == names.end())
    refuse_unknown("topic", wanted, names);
  if (const auto page = arguments->text("markdown")) {
    if (wanted != "classes") throw InvalidInput("--markdown: only the topic classes is a page");
    require_writable(*page);
    write_text_atomically(*page,
                          fault_classes_page("shardcheck list classes --markdown=docs/fault-classes.md"));
    return kPassed;
  }
  for (const auto& [name, text] : kTopics) {
    if (wanted.empty()) print_section(name);
    if (wanted.empty() || wanted == name) print(text());
  }
  return kPassed;
}

}  // namespace

const Subcommand& list() {
  static const Subcommand command{"list", "laws, faults, layouts, oracles, case keys and SIMD targets", run};
  return command;
}

}  // namespace shardcheck::subcommands
