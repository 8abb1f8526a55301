// A transport that sends a layer once and takes it from a cache from then on.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class CachesLastLayer final : public SubjectDecorator {
 public:
  using SubjectDecorator::SubjectDecorator;
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors delivered = inner().reshard(shards, source, target);
    for (const LayoutEntry& entry : target.entries) {
      if (entry.parts.front().layer != target.geometry.n_layers - 1) continue;
      auto& held = delivered.at(entry.name);
      held = cached_.try_emplace(to_string(target.name) + "/" + entry.name, held).first->second;
    }
    return delivered;
  }

 private:
  ShardedTensors cached_;
};

}  // namespace

// No oracle sees it: each syncs once. The law every_sync_delivers_its_weights does.
const Fault& cache_layer_after_first_sync() {
  static const Fault fault{
      .name = "cache_layer_after_first_sync",
      .family = 'S',
      .level = FaultLevel::sync,
      .claim = "From the second sync on the last layer is that of the first.",
      .reports = {"A100", "A101", "blind spot: a transport that caches one layer after the first sync"},
      .oracles = {},
      .law = "every_sync_delivers_its_weights",
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
      .equivalent = nullptr,
      .inject = [](std::shared_ptr<Subject> inner, const Case&, std::string_view)
          -> std::shared_ptr<Subject> { return std::make_shared<CachesLastLayer>(std::move(inner)); },
      .meshes = true};
  return fault;
}

}  // namespace shardcheck::faults
