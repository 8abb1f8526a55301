// shardcheck doctor: what this machine and this build have, and whether the arithmetic can be trusted here.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "exit_code.h"
#include "options.h"
#include "report_json.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/properties/law.h"
#include "shardcheck/tensor/stream.h"
#include "shardcheck/tolerance/floor.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

/// Where a program lies on PATH, empty when it does not.
std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    const std::filesystem::path candidate = std::filesystem::path(rest.substr(0, colon)) / name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate.string();
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return "";
}

std::string sanitizers() {
  std::vector<std::string> names;
#ifdef __SANITIZE_ADDRESS__
  names.emplace_back("address");
#endif
#ifdef __SANITIZE_THREAD__
  names.emplace_back("thread");
#endif
  return names.empty() ? "none" : join(names, ", ");
}

/// A small product with a remainder in every dimension, as every reduction of the library computes it.
std::vector<float> small_product() {
  constexpr std::int64_t m = 5, n = 37, k = 96, leaf = 24;
  std::vector<float> x(m * k), w(n * k), y(m * n);
  fill_normal(x, stream_key(1, "doctor x"), 0.0F, 1.0F);
  fill_normal(w, stream_key(1, "doctor w"), 0.0F, 1.0F);
  const PackedWeights packed(w.data(), n, k, k);
  gemm(x.data(), k, m, packed, Reduction::whole(TreeShape::halving, k, leaf), y.data(), n);
  return y;
}

/// Names of the targets whose product differs in any bit from the last, plainest one.
std::vector<std::string> disagreeing_targets() {
  const std::vector<std::string> targets = simd_targets();
  std::vector<std::vector<float>> products;
  for (const std::string& target : targets) {
    force_simd_target(target);
    products.push_back(small_product());
  }
  force_simd_target("");
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i + 1 < targets.size(); ++i)
    if (!std::equal(products[i].begin(), products[i].end(), products.back().begin()))
      wrong.push_back(targets[i]);
  return wrong;
}

void print_facts() {
  Table table({{"fact"}, {"value"}});
  table.row({"version", fmt::format("{} (commit {})", SHARDCHECK_VERSION, build_commit())});
  for (const auto& [key, value] : this_environment())
    if (key != "commit" && key != "mpi") table.row({key, value});
  table.row({"SIMD targets", join(simd_targets(), ", ")});
  table.row({"hardware threads", std::to_string(std::thread::hardware_concurrency())});
  table.row({"sanitizers", sanitizers()});
  const std::string mpirun = find_program("mpirun");
  table.row({"mpirun", mpirun.empty() ? "not on PATH" : mpirun});
  print(table.text());
}

bool print_check(const std::string& what, bool holds, const std::string& detail) {
  print_line(fmt::format("  {}  {}{}", paint(holds ? Tone::good : Tone::bad, holds ? "ok  " : "FAIL"), what,
                         detail.empty() ? "" : "   " + paint(Tone::faint, detail)));
  return holds;
}

bool print_checks() {
  bool good = true;
  const std::vector<std::string> wrong = disagreeing_targets();
  good &= print_check("every SIMD target gives the same bits", wrong.empty(), join(wrong, ", "));
  good &= print_check("layout tables are embedded", !LayoutTable::built_in_names().empty(),
                      join(LayoutTable::built_in_names(), ", "));
  good &= print_check("laws are registered", !all_laws().empty(),
                      format_noun(static_cast<std::int64_t>(all_laws().size()), "law"));
  good &= print_check("faults are registered", !all_faults().empty(),
                      format_noun(static_cast<std::int64_t>(all_faults().size()), "fault"));
  try {
    const FloorCheck check = check_floor(load_recorded_floor("in_process"));
    good &= print_check("the recorded floor is valid for this build", check.failures.empty(),
                        join(check.failures, "; "));
    for (const std::string& warning : check.warnings)
      print_line(fmt::format("  {}  recorded floor: {}", paint(Tone::doubtful, "note"), warning));
  } catch (const std::exception& error) {
    good &= print_check("the recorded floor can be read", false, error.what());
  }
  return good;
}

int run(const std::vector<std::string>& words) {
  CommandLine line(
      "doctor", "",
      "Says what this machine and this build have, and checks that the arithmetic can be trusted here.",
      "doctor");
  if (!line.parse(words)) return kPassed;
  print_section("Facts");
  print_facts();
  print_section("Checks");
  return print_checks() ? kPassed : kError;
}

}  // namespace

const Subcommand& doctor() {
  static const Subcommand command{"doctor", "what this machine and this build have", run};
  return command;
}

}  // namespace shardcheck::subcommands
