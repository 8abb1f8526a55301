#include "axes_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "axes_report.h"
#include "terminal.h"

namespace shardcheck {
namespace {

constexpr std::string_view kIntroduction =
    R"(# The determinism axes

An axis is one thing that an engine may change between two runs of the same model on the same tokens: how many
requests share a batch, where a prompt is cut, how many ranks hold the weights. Under `tree` and `exact` no
axis may change a bit of a logit or of a log-probability; each has a law that says so on random models,
dtypes, contracts and meshes. Having one axis does not give another: each law has a fault of family D that
breaks its axis and that the laws of the other axes let pass.

The figures are those of one run, of commit {commit}, which wrote this page:

```
{command}
```

)";

constexpr std::string_view kMeasured =
    R"(## Measured

*Tree and exact*: cases of the law in which a bit differed; `exact` is drawn in a share of them. *Native*:
the same law under `native`, one partial sum per rank folded in rank order, as engines run, and with f32
storage, since rounding to 16 bits hides most last bits; *worst* is the largest difference of a logit.
Where native has one fixed order along the axis anyway, equal bits are no merit of a tree, and the fault
is the evidence that the law can fail; along context parallel, TP degree and train / rollout native must
differ in at least half the cases. *Seen in*: number of the first case, among those that the fault acted
in, in which the law saw it; all of these run under `tree`.

)";

constexpr std::string_view kMatrix =
    R"(## Every fault against every law

Columns are the axes by number. A number is the first case in which the law of that axis saw the fault of
this row, `-` that it did not in up to {cases} cases that the fault acted in, `n/a` that the fault could
act in none. The diagonal must hold numbers. Off it only `logprobs_agree_across_layouts` may see a fault:
training and rollout differ in their ranks, so that axis contains others.

)";

constexpr std::string_view kOthers =
    R"(## What other systems claim

From each system's own text, on its own hardware; nothing in their columns was measured here. An empty cell
means that the source does not claim the axis, not that it fails. ShardCheck runs on CPU ranks in one process:
its column says which bits agree, not how fast an engine would be.

)";

std::string table_row(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string rule(const std::vector<bool>& right) {
  std::string line = "|";
  for (const bool aligned_right : right) line += aligned_right ? "---:|" : "---|";
  return line + "\n";
}

std::string code(std::string_view word) { return fmt::format("`{}`", word); }

std::string measured_table(const std::vector<AxisRow>& rows) {
  std::string text =
      table_row({"#", "axis", "law", "cases", "tree and exact", "native", "fault", "seen in"}) +
      rule({true, false, false, true, false, false, false, false});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const AxisRow& row = rows[i];
    const std::string seen =
        row.own.first_kill > 0 ? fmt::format("case {}", row.own.first_kill) : describe_kill(row.own);
    text += table_row({std::to_string(i + 1), std::string(row.axis.name), code(row.axis.law),
                       format_count(row.bitwise.cases), describe_bitwise(row.bitwise), describe_native(row),
                       code(row.axis.fault), seen});
  }
  return text + "\n";
}

std::string problem_list(const std::vector<AxisRow>& rows) {
  std::string text;
  for (const AxisRow& row : rows) {
    for (const std::string& problem : row.problems())
      text += fmt::format("- **{}**: {}\n", row.axis.name, problem);
    for (const std::string& gap : row.gaps()) text += fmt::format("- **{}**: {}\n", row.axis.name, gap);
  }
  return text.empty() ? text : text + "\n";
}

std::string matrix_table(const std::vector<AxisRow>& rows) {
  std::vector<std::string> header = {"fault"};
  std::vector<bool> right = {false};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    header.push_back(std::to_string(i + 1));
    right.push_back(true);
  }
  std::string text = table_row(header) + rule(right);
  for (const AxisRow& row : rows) {
    std::vector<std::string> cells = {code(row.axis.fault)};
    for (const AxisKill* kill : matrix_row(row, rows)) {
      const std::string cell = kill == nullptr ? "" : matrix_cell(*kill);
      cells.push_back(kill == &row.own ? fmt::format("**{}**", cell) : cell);
    }
    text += table_row(cells);
  }
  return text + "\n";
}

std::string claim_of(const KnownSystem& system, std::string_view axis) {
  for (const auto& [name, claim] : system.claims)
    if (name == axis) return std::string(claim);
  return "";
}

std::string claims_table(const std::vector<AxisRow>& rows) {
  std::vector<std::string> header = {"axis", "ShardCheck, this run"};
  for (const KnownSystem& system : known_systems()) header.emplace_back(system.name);
  std::string text = table_row(header) + rule(std::vector<bool>(header.size(), false));
  for (const AxisRow& row : rows) {
    std::vector<std::string> cells = {
        std::string(row.axis.name),
        row.bitwise.differing > 0 || row.bitwise.cases == 0
            ? describe_bitwise(row.bitwise)
            : fmt::format("0 differing bits in {}", format_noun(row.bitwise.cases, "case"))};
    for (const KnownSystem& system : known_systems()) cells.push_back(claim_of(system, row.axis.name));
    text += table_row(cells);
  }
  return text + "\n";
}

std::string systems_table() {
  std::string text =
      table_row({"system", "reach", "cost it states", "source"}) + rule({false, false, false, false});
  for (const KnownSystem& system : known_systems())
    text += table_row({std::string(system.name), std::string(system.reach), std::string(system.cost),
                       std::string(system.source)});
  return text;
}

/// Most cases that any fault acted in without being seen by a law of another axis.
std::int64_t longest_survival(const std::vector<AxisRow>& rows) {
  std::int64_t most = 0;
  for (const AxisRow& row : rows)
    for (const AxisKill& kill : row.other)
      if (kill.first_kill == 0) most = std::max(most, kill.cases);
  return most;
}

}  // namespace

const std::vector<KnownSystem>& known_systems() {
  static const std::vector<KnownSystem> systems = {
      {"TBIK",
       "[arXiv 2511.17826](https://arxiv.org/abs/2511.17826)",
       "row-parallel layers, K_local a multiple of 256",
       "22 to 63 % end to end; matmul 2 to 25 %, collective at most 10 %",
       {{"TP degree", "1, 2, 4, 8"}}},
      {"IsoExec",
       "pik, August 2026",
       "G = 2^k leaves, f32 tree, log-softmax over a cut vocabulary",
       "25.3 % of a step",
       {{"TP degree", "2^k"},
        {"sequence parallel", "yes"},
        {"expert parallel", "yes"},
        {"train / rollout", "mean log-probability difference 6.7e-7, not 0"}}},
      {"vLLM batch invariance",
       "[vLLM documentation](https://docs.vllm.ai/en/latest/features/batch_invariance/)",
       "one TP degree",
       "21 to 36 % of throughput",
       {{"run to run", "yes"}, {"batch", "yes"}}},
      {"SGLang deterministic",
       "[SGLang documentation](https://docs.sglang.io/advanced_features/deterministic_inference.html)",
       "one TP degree",
       "34 % on average",
       {{"run to run", "yes"}, {"batch", "yes"}, {"chunked prefill", "yes"}}},
      {"Megatron #4740",
       "Megatron-LM #4740",
       "all-gathers the shards and multiplies over the whole of K",
       "not given",
       {{"TP degree", "1, 2, 4, 8"}}},
      {"ReproBLAS",
       "ReproBLAS",
       "CPU BLAS and MPI reductions, not models",
       "a dot product takes about 4 times as long",
       {{"run to run", "sums in any order"}, {"TP degree", "sums in any order"}}},
  };
  return systems;
}

std::string axes_page(const AxesRun& run) {
  std::string text = fmt::format(fmt::runtime(kIntroduction), fmt::arg("commit", run.commit),
                                 fmt::arg("command", run.command));
  text += kMeasured;
  text += measured_table(run.rows) + problem_list(run.rows);
  text += fmt::format(fmt::runtime(kMatrix), fmt::arg("cases", format_count(longest_survival(run.rows))));
  text += matrix_table(run.rows);
  text += kOthers;
  return text + claims_table(run.rows) + systems_table();
}

}  // namespace shardcheck
