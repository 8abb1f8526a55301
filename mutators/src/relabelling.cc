#include "shardcheck/mutators/relabelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "shardcheck/text/errors.h"

namespace shardcheck {
namespace {

/// What one order moves: rows of what the layer writes, columns of what reads it.
struct Carriers {
  Order LayerRelabelling::*order;
  std::string_view noun;
  std::span<const std::string_view> rows;
  std::string_view columns;  // empty: nothing reads them by their place
};

constexpr std::array<std::string_view, 4> kFfnRows = {"gate", "gate_bias", "up", "up_bias"};
constexpr std::array<std::string_view, 4> kKvRows = {"k", "k_bias", "v", "v_bias"};
constexpr std::array<std::string_view, 3> kHeadRows = {"q", "q_bias", "sinks"};
constexpr std::array<Carriers, 3> kCarriers = {
    {{&LayerRelabelling::ffn, "FFN channels", kFfnRows, "down"},
     {&LayerRelabelling::kv_heads, "KV heads", kKvRows, ""},
     {&LayerRelabelling::heads, "query heads", kHeadRows, "o_proj"}}};

bool is_permutation_of(const Order& order, std::int64_t count) {
  std::vector<bool> seen(static_cast<std::size_t>(count), false);
  if (std::ssize(order) != count) return false;
  for (const std::int64_t place : order) {
    if (place < 0 || place >= count || seen[static_cast<std::size_t>(place)]) return false;
    seen[static_cast<std::size_t>(place)] = true;
  }
  return true;
}

std::int64_t old_place(const Order& order, std::int64_t place) {
  return order.empty() ? place : order[static_cast<std::size_t>(place)];
}

/// The first head that reads another KV head than before, or -1.
std::int64_t head_that_left_its_group(const Geometry& g, const LayerRelabelling& layer) {
  const std::int64_t group = g.n_heads / g.n_kv_heads;
  for (std::int64_t head = 0; head < g.n_heads; ++head) {
    if (old_place(layer.heads, head) / group != old_place(layer.kv_heads, head / group)) return head;
  }
  return -1;
}

std::string why_layer_not_preserved(const Geometry& g, const LayerRelabelling& layer) {
  const std::array<std::int64_t, 3> counts = {g.ffn, g.n_kv_heads, g.n_heads};
  for (std::size_t i = 0; i < kCarriers.size(); ++i) {
    const Order& order = layer.*kCarriers[i].order;
    if (!order.empty() && !is_permutation_of(order, counts[i]))
      return fmt::format("{} {} is no permutation of {}", kCarriers[i].noun, fmt::join(order, ","),
                         counts[i]);
  }
  if (layer.heads.empty() && layer.kv_heads.empty()) return "";
  if (g.alibi) return "the slope of a head depends on its place";
  if (g.kv_lora > 0) return "latent attention has no KV heads to move with";
  const std::int64_t head = head_that_left_its_group(g, layer);
  return head < 0 ? "" : fmt::format("query head {} reads another KV head than before", head);
}

/// Out block i of `block` equal parts along the dimension = in block order[i].
Tensor in_order(const Tensor& in, const Order& order, int dim) {
  Tensor out = Tensor::uninitialized(in.dtype(), in.shape());
  const auto blocks = order.size();
  const std::size_t outer = dim == 0 ? 1 : static_cast<std::size_t>(in.dim(0));
  const std::size_t size = in.bytes().size() / outer / blocks;
  const std::byte* from = in.bytes().data();
  std::byte* to = out.mutable_bytes().data();
  for (std::size_t row = 0; row < outer; ++row) {
    for (const std::int64_t place : order) {
      to = std::copy_n(from + (row * blocks + static_cast<std::size_t>(place)) * size, size, to);
    }
  }
  return out;
}

void reorder(TensorMap& weights, const std::string& name, const Order& order, int dim) {
  const auto found = weights.find(name);
  if (found != weights.end()) found->second = in_order(found->second, order, dim);
}

/// "4-7,0-3,9,8"
std::string ranges(const Order& order) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < order.size(); first = ++last) {
    while (last + 1 < order.size() && order[last + 1] == order[last] + 1) ++last;
    text += fmt::format("{}{}{}", text.empty() ? "" : ",", order[first],
                        last > first ? fmt::format("-{}", order[last]) : "");
  }
  return text;
}

std::string describe(const LayerRelabelling& layer) {
  std::string text;
  for (const Carriers& carriers : kCarriers) {
    const Order& order = layer.*carriers.order;
    if (order.empty()) continue;
    text += fmt::format("{}{} {} in rows of {}", text.empty() ? "" : ", ", carriers.noun, ranges(order),
                        fmt::join(carriers.rows, ", "));
    if (!carriers.columns.empty()) text += fmt::format(" and columns of {}", carriers.columns);
  }
  return text;
}

}  // namespace

Relabelling in_every_layer(const Geometry& geometry, const LayerRelabelling& layer) {
  return Relabelling(static_cast<std::size_t>(geometry.n_layers), layer);
}

std::string why_not_preserved(const Geometry& geometry, const Relabelling& relabelling) {
  for (const LayerRelabelling& layer : relabelling) {
    if (std::string reason = why_layer_not_preserved(geometry, layer); !reason.empty()) return reason;
  }
  return "";
}

TensorMap relabelled(const Geometry& geometry, TensorMap weights, const Relabelling& relabelling) {
  if (const std::string reason = why_not_preserved(geometry, relabelling); !reason.empty())
    throw InvalidInput("no relabelling: " + reason);
  for (std::size_t l = 0; l < relabelling.size(); ++l) {
    for (const Carriers& carriers : kCarriers) {
      const Order& order = relabelling[l].*carriers.order;
      if (order.empty()) continue;
      const auto name = [l](std::string_view role) {
        return logical_name(role, static_cast<std::int64_t>(l));
      };
      for (const std::string_view role : carriers.rows) reorder(weights, name(role), order, 0);
      if (!carriers.columns.empty()) reorder(weights, name(carriers.columns), order, 1);
    }
  }
  return weights;
}

bool moves(const LayerRelabelling& layer, std::string_view role) {
  return std::ranges::any_of(kCarriers, [&](const Carriers& carriers) {
    const bool carries = std::ranges::find(carriers.rows, role) != carriers.rows.end();
    return !(layer.*carriers.order).empty() && (carries || role == carriers.columns);
  });
}

std::string describe(const Relabelling& relabelling) {
  std::string text;
  std::size_t moving = 0;
  for (const LayerRelabelling& layer : relabelling) {
    const std::string one = describe(layer);
    if (one.empty()) continue;
    if (moving++ == 0) text = one;
  }
  return moving > 1 ? fmt::format("{} (in {} layers)", text, moving) : text;
}

}  // namespace shardcheck
