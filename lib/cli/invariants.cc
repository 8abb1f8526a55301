#include "invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>

#include "parallel.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/tolerance/workbench.h"
#include "terminal.h"

namespace shardcheck {
namespace {

constexpr int kLargestDegree = 16;

/// A configuration made concrete once and shared by its cells, which only read it.
struct Bench {
  std::string name;
  std::unique_ptr<Workbench> workbench;
  Tensor native, tree;  // reference logits
  Threshold threshold;
};

LayoutName seed_layout(int degree) {
  LayoutName name;
  if (degree > 1) name.axes.emplace_back("tp", degree);
  return name;
}

Case recorded_case(const Geometry& geometry, int source, int target, const std::string& fault) {
  Case c;
  c.law = "sharded_equals_reference";
  c.geometry = geometry;
  c.weights = WeightStyle::recorded;
  c.batch = 2;
  c.length = 16;
  c.source = seed_layout(source);
  c.target = seed_layout(target);
  c.fault = fault;
  return c;
}

Bench make_bench(const std::string& name, const Geometry& geometry) {
  Bench bench{name, std::make_unique<Workbench>(recorded_case(geometry, 1, 1, "")), {}, {}, {}};
  bench.native = bench.workbench->reference(Arithmetic::native);
  bench.tree = bench.workbench->reference(Arithmetic::tree);
  bench.threshold = bench.workbench->threshold();
  return bench;
}

std::vector<int> degrees_of(const Geometry& geometry) {
  std::vector<int> candidates;
  for (int t = 1; t <= kLargestDegree; ++t) candidates.push_back(t);
  return supported_degrees(LayoutTable::built_in("seed"), geometry, candidates);
}

std::vector<Tensor> run_sharded(const Bench& bench, Subject& subject, const Layout& target,
                                const ShardedTensors& shards, Arithmetic arithmetic) {
  const auto collective = subject.collective(target.degree);
  const ShardedModel model(target.geometry, shards, consumer_named(target.consumer), *collective, arithmetic,
                           bench.workbench->contract(), subject.steps());
  return model.forward(bench.workbench->tokens());
}

void judge_cell(const Bench& bench, InvariantCell& cell) {
  if (const auto reason = why_fault_is_inert(cell.value)) {
    cell.not_applicable = *reason;
    return;
  }
  const auto subject = subject_of(cell.value);
  const Layout source = make_layout(cell.value.source, cell.value.geometry);
  const Layout target = make_layout(cell.value.target, cell.value.geometry);
  const ShardedTensors shards =
      subject->reshard(subject->split(bench.workbench->weights(), source), source, target);

  const Comparison native =
      compare_ranks(bench.native, run_sharded(bench, *subject, target, shards, Arithmetic::native)).worst;
  const bool is_below = native.max_abs < cell.threshold;
  cell.max_deviation = native.max_abs;
  cell.max_ulp = native.max_ulp();
  cell.native_holds =
      native.vacuous.empty() && (cell.target_degree == 1 ? native.differing_bits == 0 : is_below);
  // One rank is held to equal bits, whatever the threshold.
  if (cell.target_degree > 1) cell.mistrusted = bench.threshold.mistrusted();

  const Comparison tree =
      compare_ranks(bench.tree, run_sharded(bench, *subject, target, shards, Arithmetic::tree)).worst;
  cell.tree_differing = tree.differing_bits;
  cell.tree_holds = tree.differing_bits == 0 && tree.vacuous.empty();

  if (cell.native_holds && cell.tree_holds) {
    cell.message = cell.mistrusted;
    return;
  }
  cell.difference = Workbench::first_difference(target, split(bench.workbench->weights(), target), shards);
  cell.message = !native.vacuous.empty()
                     ? native.vacuous
                     : fmt::format("logits deviate by {:.3g}, threshold {:.3g}; {} differ under tree",
                                   native.max_abs, cell.threshold, format_count(tree.differing_bits));
}

std::vector<InvariantCell> cells_of(const Bench& bench, const std::string& fault) {
  const Geometry& geometry = bench.workbench->value().geometry;
  const std::vector<int> degrees = degrees_of(geometry);
  std::vector<InvariantCell> cells;
  for (const int source : degrees) {
    for (const int target : degrees) {
      InvariantCell cell;
      cell.config = bench.name;
      cell.value = recorded_case(geometry, source, target, fault);
      cell.source_degree = source;
      cell.target_degree = target;
      cell.threshold = bench.threshold.value;
      cells.push_back(std::move(cell));
    }
  }
  return cells;
}

}  // namespace

Verdict InvariantCell::verdict() const {
  if (!judged()) return Verdict::skipped;
  if (!native_holds || !tree_holds) return Verdict::failed;
  return mistrusted.empty() ? Verdict::passed : Verdict::mistrusted;
}

bool InvariantReport::failed() const {
  return std::any_of(cells.begin(), cells.end(),
                     [](const InvariantCell& cell) { return cell.verdict() == Verdict::failed; });
}

bool InvariantReport::holds() const {
  return std::all_of(cells.begin(), cells.end(),
                     [](const InvariantCell& cell) { return cell.holds() || !cell.judged(); });
}

std::int64_t InvariantReport::judged() const {
  return std::count_if(cells.begin(), cells.end(), [](const InvariantCell& cell) { return cell.judged(); });
}

InvariantReport check_invariants(const InvariantOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::pair<std::string, Geometry>> configs = {{"TOY", toy()}, {"TOY_KV4", toy_kv4()}};
  std::vector<Bench> benches(configs.size());
  parallel_for(configs.size(), options.jobs,
               [&](std::size_t i) { benches[i] = make_bench(configs[i].first, configs[i].second); });

  InvariantReport report;
  std::vector<const Bench*> bench_of;
  for (const Bench& bench : benches) {
    for (InvariantCell& cell : cells_of(bench, options.fault)) {
      report.cells.push_back(std::move(cell));
      bench_of.push_back(&bench);
    }
  }
  report.threshold_source = benches[0].threshold.source;
  std::mutex reporting;
  std::size_t done = 0;
  parallel_for(report.cells.size(), options.jobs, [&](std::size_t i) {
    InvariantCell& cell = report.cells[i];
    try {
      judge_cell(*bench_of[i], cell);
    } catch (const std::runtime_error& error) {
      // The library refused what the subject produced: the cell fails, and the message says why.
      cell.message = error.what();
    }
    const std::scoped_lock lock(reporting);
    ++done;
    if (!options.progress) return;
    options.progress(
        {ProgressEvent::Kind::step,
         fmt::format("invariant  {} tp{} -> tp{}", cell.config, cell.source_degree, cell.target_degree),
         static_cast<double>(done) / static_cast<double>(report.cells.size())});
  });
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace shardcheck
