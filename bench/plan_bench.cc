// Plans from names and shapes alone: how long they take and how much memory, against the number of ranks.
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON && cmake --build --preset release --target plan_bench
//   taskset -c 0 ./plan_bench      (from the bench folder of the build tree)
//
// One table: model, source and target layout, ranks, tensors of the model, copies, bytes written (bf16) and
// the share of them that a process holds already, whether both equal the bound derived from the layouts, and
// seconds of processor time for the layouts, the plan and the bound. Peak memory of the program so far is in
// the last column; each row runs in the memory that the rows before it gave back. Exit code 1 when a plan and
// its bound differ.
#include <fmt/format.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "measure.h"
#include "shardcheck/reshard/plan.h"

namespace shardcheck::bench {
namespace {

/// Published geometry. Source: the model's config.json, from memory.
Geometry llama_405b() {
  Geometry g;
  g.d_model = 16384, g.n_layers = 126, g.n_heads = 128, g.n_kv_heads = 8, g.head_dim = 128;
  g.ffn = 53248, g.vocab = 128256;
  return g;
}

/// Published geometry. Source: the model's config.json, from memory.
Geometry deepseek_v3() {
  Geometry g;
  g.d_model = 7168, g.n_layers = 61, g.n_heads = 128, g.n_kv_heads = 128, g.head_dim = 128;
  g.ffn = 18432, g.vocab = 129280;
  g.n_experts = 256, g.expert_ffn = 2048, g.shared_ffn = 2048, g.dense_layers = 3, g.router_bias = true;
  g.q_lora = 1536, g.kv_lora = 512, g.nope_dim = 128, g.rope_dim = 64, g.v_dim = 128;
  return g;
}

struct Row {
  std::string model;
  Geometry geometry;
  std::string source, target;
};

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

bool run(const Row& row) {
  const double start = thread_seconds();
  const Layout source = make_layout(parse_layout_name(row.source), row.geometry);
  const Layout target = make_layout(parse_layout_name(row.target), row.geometry);
  const double laid_out = thread_seconds();
  const Plan plan = make_plan(source, target);
  const double planned = thread_seconds();
  const PlanBound bound = plan_bound(source, target);
  const double bounded = thread_seconds();
  const bool equal = bound.elements == plan.elements_moved && bound.held_already == plan.elements_local;
  fmt::print(
      "| {} | {} | {} | {} | {} | {} | {} | {:.2f} | {:.1f} % | {} | {:.2f} | {:.2f} | {:.2f} | {:.0f} |\n",
      row.model, row.source, source.degree, row.target, target.degree, logical_tensors(row.geometry).size(),
      plan.copies.size(), static_cast<double>(plan.elements_moved) * 2e-12,
      100.0 * static_cast<double>(plan.elements_local) / static_cast<double>(plan.elements_moved),
      equal ? "yes" : "NO", laid_out - start, planned - laid_out, bounded - planned, peak_mib());
  return equal;
}

int run_all() {
  const std::vector<Row> rows = {
      {"Llama-3-405B", llama_405b(), "megatron-llama:pp4,tp16,first31,last31", "vllm-llama:tp8"},
      {"Llama-3-405B", llama_405b(), "megatron-llama:dp8,pp2,tp16", "vllm-llama:dp4,tp16"},
      {"Llama-3-405B", llama_405b(), "megatron-llama:dp8,pp14,tp8,first5,last1", "vllm-llama:dp16,tp16"},
      {"DeepSeek-V3", deepseek_v3(), "megatron-mla-moe:ep8,tp8", "vllm-mla-moe:tp8"},
      {"DeepSeek-V3", deepseek_v3(), "megatron-mla-moe:pp4,ep8,tp8,first16", "megatron-mla-moe:ep8,tp32"},
      {"DeepSeek-V3", deepseek_v3(), "megatron-mla-moe:pp16,ep8,tp8,first3,last2",
       "megatron-mla-moe:ep8,tp32"},
      {"DeepSeek-V3", deepseek_v3(), "megatron-mla-moe:pp16,ep8,tp8,first3,last2", "vllm-mla-moe:tp32"},
  };
  fmt::print(
      "| model | source | ranks | target | ranks | tensors | copies | TB written | held already | equals the "
      "bound | layouts s | plan s | bound s | peak MiB "
      "|\n|---|---|---:|---|---:|---:|---:|---:|---:|---|---:|---:"
      "|---:|---:|\n");
  bool all = true;
  for (const Row& row : rows) all = run(row) && all;
  return all ? 0 : 1;
}

}  // namespace
}  // namespace shardcheck::bench

int main() { return shardcheck::bench::run_all(); }
