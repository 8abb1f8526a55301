#include "case_editor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

#include "case_input.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck::fuzz {
namespace {

constexpr int kTries = 4;

using Take = void (*)(Case& c, const Case& other);

/// Keys that mean little alone.
constexpr std::array<Take, 13> kGroups = {
    [](Case& c, const Case& other) { c.geometry = other.geometry; },
    [](Case& c, const Case& other) {
      c.geometry.n_heads = other.geometry.n_heads;
      c.geometry.n_kv_heads = other.geometry.n_kv_heads;
      c.geometry.head_dim = other.geometry.head_dim;
    },
    [](Case& c, const Case& other) {
      c.geometry.d_model = other.geometry.d_model;
      c.geometry.ffn = other.geometry.ffn;
      c.geometry.vocab = other.geometry.vocab;
    },
    [](Case& c, const Case& other) {
      c.geometry.n_experts = other.geometry.n_experts;
      c.geometry.experts_per_token = other.geometry.experts_per_token;
      c.geometry.expert_ffn = other.geometry.expert_ffn;
      c.geometry.shared_ffn = other.geometry.shared_ffn;
      c.geometry.dense_layers = other.geometry.dense_layers;
      c.geometry.router_bias = other.geometry.router_bias;
    },
    [](Case& c, const Case& other) {
      c.geometry.q_lora = other.geometry.q_lora;
      c.geometry.kv_lora = other.geometry.kv_lora;
      c.geometry.nope_dim = other.geometry.nope_dim;
      c.geometry.rope_dim = other.geometry.rope_dim;
      c.geometry.v_dim = other.geometry.v_dim;
    },
    [](Case& c, const Case& other) {
      c.source = other.source;
      c.target = other.target;
      c.via = other.via;
    },
    [](Case& c, const Case& other) { c.source = other.target; },
    [](Case& c, const Case& other) { c.target = other.source; },
    [](Case& c, const Case&) { std::swap(c.source, c.target); },
    [](Case& c, const Case& other) { c.target.axes = other.target.axes; },
    [](Case& c, const Case& other) {
      c.arithmetic = other.arithmetic;
      c.tree_shape = other.tree_shape;
      c.leaf = other.leaf;
      c.key_block = other.key_block;
      c.degrees = other.degrees;
      c.exchange = other.exchange;
    },
    [](Case& c, const Case& other) {
      c.batch = other.batch;
      c.length = other.length;
      c.lengths = other.lengths;
      c.chunks = other.chunks;
      c.context_ends = other.context_ends;
    },
    [](Case& c, const Case& other) {
      c.law = other.law;
      c.effective = other.effective;
      c.fault = other.fault;
    },
};

const std::vector<std::string>& keys() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const CaseKey& key : case_keys()) all.push_back(key.key);
    return all;
  }();
  return names;
}

void take_one(Case& c, const Case& other, Stream& stream) {
  if (stream.chance(1, 2)) {
    kGroups[static_cast<std::size_t>(stream.integer(0, std::ssize(kGroups) - 1))](c, other);
  } else {
    const std::string& key = stream.pick(keys());
    set_case_key(c, key, get_case_key(other, key));
  }
}

/// One number a step, twice or half.
void step_number(Case& c, Stream& stream) {
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const std::string& key = stream.pick(keys());
    const std::string text = get_case_key(c, key);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value > (std::int64_t{1} << 40)) continue;
    value = stream.pick<std::int64_t>({value + 1, value - 1, value * 2, value / 2, value * 3, 0, 1});
    set_case_key(c, key, std::to_string(value));
    return;
  }
}

/// Trying every way to shrink costs more than most checks: one in 64 edits.
void change(const Target& target, Case& c, Stream& stream) {
  if (stream.chance(1, 64)) {
    const std::vector<Case> simpler = shrink_case(c);
    if (!simpler.empty()) c = stream.pick(simpler);
  } else if (stream.chance(1, 3)) {
    step_number(c, stream);
  } else {
    take_one(c, drawn_case(target, stream), stream);
  }
}

/// The case as it comes back from its line; nullopt where that is refused.
std::optional<Case> parsed_back(const Case& c) { return read_case(print_case(c)); }

std::optional<Case> changed(const Target& target, Case c, Stream& stream) {
  try {
    do change(target, c, stream);
    while (stream.chance(1, 4));
  } catch (const InvalidInput&) {  // a number out of its range
    return std::nullopt;
  }
  return parsed_back(c);
}

}  // namespace

const Case& drawn_case(const Target& target, Stream& stream) {
  constexpr std::size_t kDrawn = 1024;
  static std::map<const Target*, std::vector<std::optional<Case>>> memory;
  std::vector<std::optional<Case>>& drawn = memory[&target];
  drawn.resize(kDrawn);
  const auto index = static_cast<std::size_t>(stream.integer(0, kDrawn - 1));
  if (!drawn[index]) {
    Stream own = Stream(0, target.name).child(std::to_string(index));
    const std::string text = target.draw(own);
    drawn[index] = read_case(text.substr(0, text.find('\n')));
    if (!drawn[index]) drawn[index].emplace().law = "sharded_equals_reference";
  }
  return *drawn[index];
}

Case edit_case(const Target& target, const Case& c, Stream& stream) {
  for (int attempt = 0; attempt < kTries; ++attempt) {
    auto edited = changed(target, c, stream);
    if (edited && !(*edited == c)) return std::move(*edited);
  }
  return drawn_case(target, stream);
}

Case cross_cases(const Case& first, const Case& second, Stream& stream) {
  for (int attempt = 0; attempt < kTries; ++attempt) {
    Case c = first;
    for (std::int64_t taken = stream.integer(1, 4); taken > 0; --taken) take_one(c, second, stream);
    if (auto crossed = parsed_back(c)) return std::move(*crossed);
  }
  return second;
}

}  // namespace shardcheck::fuzz
