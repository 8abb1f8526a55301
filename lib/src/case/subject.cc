#include "shardcheck/case/subject.h"

namespace shardcheck {

ShardedTensors Subject::split(const TensorMap& full, const Layout& target) {
  return shardcheck::split(full, target);
}

TensorMap Subject::gather(const ShardedTensors& shards, const Layout& source) {
  return shardcheck::gather(shards, source);
}

ShardedTensors Subject::reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) {
  return shardcheck::reshard(shards, source, target);
}

Plan Subject::plan(const Layout& source, const Layout& target) { return make_plan(source, target); }

std::vector<TensorMap> Subject::split_quantized(const QuantizedMatrix& matrix, const TensorMap& full,
                                                ParallelStyle style, int degree) {
  return shardcheck::split_quantized(PlacedQuantized(matrix, style, degree), full);
}

std::unique_ptr<Collective> Subject::collective(int degree) { return make_in_process_collective(degree); }

const ForwardSteps& Subject::steps() const { return right_steps(); }

}  // namespace shardcheck
