#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "shardcheck/arithmetic/functions.h"
#include "shardcheck/arithmetic/kernels.h"

namespace shardcheck {
namespace {

using Elementwise = void (*)(std::span<const float>, std::span<float>);

Elementwise function_of(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return silu_f32;
    case Activation::gelu_tanh:
      return gelu_tanh_f32;
    case Activation::gelu:
      return gelu_f32;
  }
  throw std::invalid_argument("activate: no such activation");
}

}  // namespace

void activate(Activation activation, std::span<const float> x, std::span<float> out) {
  function_of(activation)(x, out);
}

void activate_multiply(Activation activation, std::span<const float> gate, std::span<const float> up,
                       std::span<float> out) {
  if (gate.size() != up.size() || gate.size() != out.size()) {
    throw std::invalid_argument(
        fmt::format("activate_multiply: gate has {} values, up {}, out {}; they must agree", gate.size(),
                    up.size(), out.size()));
  }
  const Elementwise function = function_of(activation);
  // In pieces by way of a buffer, so that `out` may be `gate` or `up`.
  std::array<float, 512> piece;
  for (std::size_t first = 0; first < gate.size(); first += piece.size()) {
    const std::size_t count = std::min(piece.size(), gate.size() - first);
    function(gate.subspan(first, count), std::span(piece).first(count));
    for (std::size_t i = 0; i < count; ++i) out[first + i] = piece[i] * up[first + i];
  }
}

void silu_multiply(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  activate_multiply(Activation::silu, gate, up, out);
}

}  // namespace shardcheck
