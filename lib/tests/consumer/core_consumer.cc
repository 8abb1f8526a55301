// Uses the installed library alone: moves a small random model from one degree to another and back.
#include <cstdio>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/reshard/reshard.h"

int main() {
  using namespace shardcheck;
  Geometry geometry;
  geometry.d_model = 32;
  geometry.n_layers = 1;
  geometry.n_heads = 4;
  geometry.n_kv_heads = 2;
  geometry.head_dim = 8;
  geometry.ffn = 48;
  geometry.vocab = 40;

  const TensorMap full = make_weights(geometry, WeightStyle::fingerprint, 0, DType::f32);
  const Layout source = make_layout(parse_layout_name("seed"), geometry);
  const Layout target = make_layout(parse_layout_name("seed:tp2"), geometry);
  const TensorMap back = gather(reshard(split(full, source), source, target), target);

  for (const auto& [name, tensor] : full) {
    if (!tensor.same_bytes(back.at(name))) {
      std::printf("%s changed on its way through %s\n", name.c_str(), to_string(target.name).c_str());
      return 1;
    }
  }
  std::printf("%zu tensors moved unchanged\n", full.size());
  return full.empty() ? 1 : 0;
}
