#include "shardcheck/properties/axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "case_gen.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/mutators/workers.h"

namespace shardcheck {
namespace {

/// The train/rollout axis runs over ranks, so it sees what breaks other axes too.
constexpr std::string_view kContainsOthers = "logprobs_agree_across_layouts";

/// Outcome of one case of a law.
struct Judged {
  Case value;
  Outcome outcome;
};

/// Cases `first`, `first` + 1, ... of a law as `prepare` changes them, in order.
template <typename Prepare>
std::vector<Judged> judge(const Law& law, const AxisOptions& options, std::int64_t first, std::int64_t count,
                          const Prepare& prepare) {
  std::vector<Judged> all(static_cast<std::size_t>(count));
  std::atomic<std::int64_t> next{0};
  run_on_workers(options.jobs, [&] {
    for (std::int64_t i = next++; i < count; i = next++) {
      Judged& judged = all[static_cast<std::size_t>(i)];
      judged.value = draw_case_at(law, options.seed, static_cast<std::uint64_t>(first + i));
      prepare(judged.value);
      judged.outcome = check_case(law, judged.value);
    }
  });
  return all;
}

/// The law's own check, also of an arithmetic that the law says nothing of.
Law speaking_of_all(const Law& law) {
  Law all = law;
  all.arithmetics.clear();
  return all;
}

bool is_decided(const Outcome& outcome) {
  return outcome.verdict == Verdict::passed || outcome.verdict == Verdict::failed;
}

AxisCount count_native(const DeterminismAxis& axis, const AxisOptions& options) {
  AxisCount count;
  const auto native = [](Case& c) {
    c.arithmetic = Arithmetic::native;
    c.dtype = DType::f32;  // rounding to 16 bits would hide most last bits
  };
  const Law law = speaking_of_all(law_named(axis.law));
  for (const Judged& judged : judge(law, options, 0, options.native_cases, native)) {
    if (!is_decided(judged.outcome)) continue;
    ++count.cases;
    if (judged.outcome.verdict == Verdict::passed) continue;
    ++count.differing;
    if (judged.outcome.difference) count.worst = std::max(count.worst, judged.outcome.difference->max_abs);
  }
  return count;
}

AxisKill kill(std::string_view fault, std::string_view law, std::int64_t cases, const AxisOptions& options) {
  // In pieces, so that a kill in the first case does not pay for the others.
  constexpr std::int64_t kPiece = 10;
  AxisKill result;
  result.fault = fault;
  result.law = law;
  const auto inject = [fault](Case& c) {
    c.fault = fault;
    c.arithmetic = Arithmetic::tree;
  };
  for (std::int64_t first = 0; first < cases && result.first_kill == 0; first += kPiece) {
    for (const Judged& judged :
         judge(law_named(law), options, first, std::min(kPiece, cases - first), inject)) {
      if (!is_decided(judged.outcome)) continue;
      ++result.cases;
      if (judged.outcome.verdict == Verdict::passed) continue;
      result.first_kill = result.cases;
      result.killing_case = print_case(judged.value);
      break;
    }
  }
  return result;
}

AxisCount bitwise_of(const LawReport& report) {
  return {report.passed + report.failed, report.failed, report.worst_deviation};
}

LawReport report_of(std::string_view law, const AxisOptions& options, const std::vector<LawReport>& laws) {
  const auto found = std::ranges::find(laws, law, &LawReport::name);
  if (found != laws.end()) return *found;
  RunOptions run;
  run.seed = options.seed;
  run.jobs = options.jobs;
  return run_law(law_named(law), run);
}

}  // namespace

const std::vector<DeterminismAxis>& determinism_axes() {
  static const std::vector<DeterminismAxis> axes = {
      {"run to run", "rerun_is_identical", "split_by_thread_count"},
      {"batch", "batch_is_invisible", "split_by_batch_size"},
      {"chunked prefill", "chunking_is_invisible", "blocks_from_chunk_start"},
      {"decoding", "decoding_equals_prefill", "reorder_single_token_sums"},
      {"hardware", "instruction_set_is_invisible", "lanes_across_k"},
      {"pipeline parallel", "pipeline_split_is_invisible", "stage_boundary_rounds_residual"},
      {"sequence parallel", "sequence_parallel_is_invisible", "sequence_chunk_reduces_alone"},
      {"expert parallel", "expert_parallel_is_invisible", "combine_experts_by_arrival", false},
      {"context parallel", "context_parallel_is_invisible", "context_rank_uses_local_maximum", false, true},
      {"TP degree", "tp_degree_is_invisible", "leaf_from_rank_count", false, true},
      {"train / rollout", kContainsOthers, "vocabulary_leaf_from_local_shard", false, true},
  };
  return axes;
}

std::vector<std::string> AxisRow::problems() const {
  std::vector<std::string> found;
  if (bitwise.differing > 0)
    found.push_back(fmt::format("{} of {} cases differ", bitwise.differing, bitwise.cases));
  if (own.cases > 0 && own.first_kill == 0)
    found.push_back(fmt::format("{} is not seen in {} cases", own.fault, own.cases));
  if (axis.native_must_differ && 2 * native.differing < native.cases)
    found.push_back(fmt::format("native differs in {} of {} cases only", native.differing, native.cases));
  for (const AxisKill& kill : other) {
    if (kill.first_kill > 0 && kill.law != kContainsOthers)
      found.push_back(fmt::format("{} is also seen by {}", kill.fault, kill.law));
  }
  return found;
}

std::vector<std::string> AxisRow::gaps() const {
  std::vector<std::string> found;
  if (bitwise.cases == 0) found.push_back(fmt::format("{} decided no case", axis.law));
  if (native.cases == 0) found.emplace_back("native decided no case");
  if (own.cases == 0) found.push_back(fmt::format("{} acted in no case of {}", own.fault, own.law));
  return found;
}

std::vector<AxisRow> measure_axes(const AxisOptions& options, const std::vector<LawReport>& laws) {
  std::vector<AxisRow> rows;
  for (const DeterminismAxis& axis : determinism_axes()) {
    if (!options.only.empty() && std::ranges::find(options.only, axis.name) == options.only.end()) continue;
    if (options.progress) options.progress({ProgressEvent::Kind::stage, fmt::format("axis {}", axis.name)});
    AxisRow& row = rows.emplace_back();
    row.axis = axis;
    row.bitwise = bitwise_of(report_of(axis.law, options, laws));
    row.native = count_native(axis, options);
    row.own = kill(axis.fault, axis.law, options.kill_cases, options);
    for (const DeterminismAxis& against : determinism_axes()) {
      if (options.other_cases == 0 || against.law == axis.law) continue;
      row.other.push_back(kill(axis.fault, against.law, options.other_cases, options));
    }
  }
  return rows;
}

int exit_code_of(const std::vector<AxisRow>& rows) {
  bool has_gap = false;
  for (const AxisRow& row : rows) {
    if (!row.problems().empty()) return 1;
    has_gap = has_gap || !row.gaps().empty();
  }
  return has_gap ? 3 : 0;
}

}  // namespace shardcheck
