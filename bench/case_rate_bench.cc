// How many random cases a core judges:
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON
//   cmake --build --preset release --target case_rate_bench
//   ./case_rate_bench [--cases=N]        (from the bench folder of the build tree; 200 by default)
//
// Random cases per second of one core, law by law, generation and judgement included.
#include <fmt/format.h>

#include "flags.h"
#include "shardcheck/properties/runner.h"

namespace shardcheck::bench {
namespace {

void print_row(std::string_view law, std::int64_t cases, double seconds) {
  fmt::print("| {} | {} | {:.0f} |\n", law, cases, static_cast<double>(cases) / seconds);
}

int run(const Flags& flags) {
  RunOptions options;
  options.cases = flags.integer("cases", 200, 1, 1'000'000);
  fmt::print("| law | cases | cases / s / core |\n|---|---:|---:|\n");
  std::int64_t cases = 0;
  double seconds = 0.0;
  for (const Law* law : all_laws()) {
    const LawReport report = run_law(*law, options);
    print_row(report.name, report.cases, report.seconds);
    cases += report.cases;
    seconds += report.seconds;
  }
  print_row("all", cases, seconds);
  return 0;
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  using shardcheck::bench::Flags;
  return shardcheck::bench::exit_code_of(
      "case_rate_bench", [&] { return shardcheck::bench::run(Flags(argc, argv, {"cases"})); });
}
