#include "case/case_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "case/case_text.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;

template <typename Number>
bool parse_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

std::string shortest(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

/// `field` maps a case to a reference to the number.
template <typename Access>
Field integer_field(std::string key, std::int64_t low, std::int64_t high, Access field) {
  const std::string allowed = fmt::format("a whole number in {}..{}", low, high);
  return {key, allowed, [field](const Case& c) { return std::to_string(field(c)); },
          [=](Case& c, std::string_view text) {
            std::int64_t value = 0;
            if (!parse_number(text, value) || value < low || value > high) refuse(key, text, allowed);
            field(c) = value;
          }};
}

/// Numbers in [low, high], or in (low, high] when `open`.
template <typename Access>
Field real_field(std::string key, double low, bool open, double high, Access field) {
  const std::string allowed =
      fmt::format("a number in {}{}..{}", open ? "more than " : "", shortest(low), shortest(high));
  return {key, allowed, [field](const Case& c) { return shortest(field(c)); },
          [=](Case& c, std::string_view text) {
            double value = 0.0;
            // Written so that NaN is refused.
            if (!parse_number(text, value) || !(open ? value > low : value >= low) || !(value <= high))
              refuse(key, text, allowed);
            field(c) = value;
          }};
}

/// A field with a closed list of spellings.
template <typename Value, typename Access>
Field choice_field(std::string key, std::vector<std::pair<std::string, Value>> choices, Access field) {
  std::string allowed;
  for (const auto& [name, value] : choices) allowed += (allowed.empty() ? "" : "|") + name;
  return {key, allowed,
          [=](const Case& c) {
            for (const auto& [name, value] : choices) {
              if (value == field(c)) return name;
            }
            return std::string("unknown");
          },
          [=](Case& c, std::string_view text) {
            for (const auto& [name, value] : choices) {
              if (name == text) {
                field(c) = value;
                return;
              }
            }
            refuse(key, text, allowed);
          }};
}

template <typename Access>
Field flag_field(std::string key, Access field) {
  return choice_field<bool>(std::move(key), {{"false", false}, {"true", true}}, field);
}

template <typename Access>
Field layout_field(std::string key, Access field) {
  return {key, "NAME[:axisN,...], e.g. seed:tp2", [field](const Case& c) { return to_string(field(c)); },
          [=](Case& c, std::string_view text) {
            try {
              field(c) = parse_layout_name(text);
            } catch (const InvalidInput& error) {
              throw InvalidCase(fmt::format("{}={}: {}", key, shown(text), error.what()));
            }
          }};
}

/// Whole numbers in low..high like 1,2,4, ascending where `ascends`; `none` stands for an empty list.
template <typename Number, typename Access>
Field list_field(std::string key, std::string none, Number low, Number high, bool ascends, Access field) {
  const std::string allowed =
      fmt::format("{}, or {}numbers in {}..{} like 1,2,4", none, ascends ? "ascending " : "", low, high);
  return {key, allowed,
          [none, field](const Case& c) {
            return field(c).empty() ? none : fmt::format("{}", fmt::join(field(c), ","));
          },
          [=](Case& c, std::string_view text) {
            std::vector<Number> numbers;
            for (std::string_view rest = text; text != none && !rest.empty();) {
              const std::size_t comma = rest.find(',');
              Number number = 0;
              const bool fits = parse_number(rest.substr(0, comma), number) && number >= low &&
                                number <= high && (!ascends || numbers.empty() || number > numbers.back());
              if (!fits || comma + 1 == rest.size()) refuse(key, text, allowed);
              numbers.push_back(number);
              rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
            }
            if (numbers.empty() && text != none) refuse(key, text, allowed);
            field(c) = std::move(numbers);
          }};
}

Field fault_field() {
  const std::string allowed = "NAME or NAME:ARGUMENT in lower-case words";
  return {"fault", allowed, [](const Case& c) { return c.fault; },
          [allowed](Case& c, std::string_view text) {
            if (!text.empty() && !is_fault(text)) refuse("fault", text, allowed);
            c.fault = text;
          }};
}

Field input_field() {
  return {"input", "UTF-8 text, quoted as a JSON string when it holds blanks",
          [](const Case& c) { return c.input; },
          [](Case& c, std::string_view text) {
            try {
              (void)nlohmann::json(std::string(text)).dump();
            } catch (const nlohmann::json::exception&) {
              refuse("input", text, "UTF-8 text");
            }
            c.input = text;
          }};
}

std::vector<Field> geometry_fields() {
  return {
      integer_field(
          "d_model", 1, kMaxWidth, [](auto& c) -> auto& { return c.geometry.d_model; }),
      integer_field(
          "layers", 1, 256, [](auto& c) -> auto& { return c.geometry.n_layers; }),
      integer_field(
          "heads", 1, 1024, [](auto& c) -> auto& { return c.geometry.n_heads; }),
      integer_field(
          "kv_heads", 1, 1024, [](auto& c) -> auto& { return c.geometry.n_kv_heads; }),
      integer_field(
          "head_dim", 1, 1024, [](auto& c) -> auto& { return c.geometry.head_dim; }),
      integer_field(
          "ffn", 1, kMaxWidth, [](auto& c) -> auto& { return c.geometry.ffn; }),
      integer_field(
          "vocab", 1, kMaxWidth, [](auto& c) -> auto& { return c.geometry.vocab; }),
      real_field(
          "norm_eps", 0.0, true, 1.0, [](auto& c) -> auto& { return c.geometry.norm_eps; }),
      choice_field<Rope>(
          "rope", {{"none", Rope::none}, {"half", Rope::half}},
          [](auto& c) -> auto& { return c.geometry.rope; }),
      real_field(
          "rope_theta", 1.0, false, 1e9, [](auto& c) -> auto& { return c.geometry.rope_theta; }),
      flag_field(
          "tied", [](auto& c) -> auto& { return c.geometry.tied; }),
      flag_field(
          "qkv_bias", [](auto& c) -> auto& { return c.geometry.qkv_bias; }),
      flag_field(
          "o_bias", [](auto& c) -> auto& { return c.geometry.o_bias; }),
      flag_field(
          "qk_norm", [](auto& c) -> auto& { return c.geometry.qk_norm; }),
  };
}

/// What tells other families from a Llama.
std::vector<Field> family_fields() {
  return {
      choice_field<Norm>(
          "norm", {{"rms", Norm::rms}, {"layer", Norm::layer}},
          [](auto& c) -> auto& { return c.geometry.norm; }),
      integer_field(
          "rotary_dim", 0, 1024, [](auto& c) -> auto& { return c.geometry.rotary_dim; }),
      choice_field<Activation>(
          "activation",
          {{"silu", Activation::silu}, {"gelu_tanh", Activation::gelu_tanh}, {"gelu", Activation::gelu}},
          [](auto& c) -> auto& { return c.geometry.activation; }),
      flag_field(
          "gated", [](auto& c) -> auto& { return c.geometry.gated; }),
      flag_field(
          "mlp_bias", [](auto& c) -> auto& { return c.geometry.mlp_bias; }),
      flag_field(
          "sinks", [](auto& c) -> auto& { return c.geometry.sinks; }),
      flag_field(
          "parallel_residual", [](auto& c) -> auto& { return c.geometry.parallel_residual; }),
      flag_field(
          "alibi", [](auto& c) -> auto& { return c.geometry.alibi; }),
      integer_field(
          "positions", 0, kMaxWidth, [](auto& c) -> auto& { return c.geometry.positions; }),
      integer_field(
          "experts", 0, 1024, [](auto& c) -> auto& { return c.geometry.n_experts; }),
      integer_field(
          "experts_per_token", 1, 1024, [](auto& c) -> auto& { return c.geometry.experts_per_token; }),
      integer_field(
          "expert_ffn", 0, kMaxWidth, [](auto& c) -> auto& { return c.geometry.expert_ffn; }),
      integer_field(
          "shared_ffn", 0, kMaxWidth, [](auto& c) -> auto& { return c.geometry.shared_ffn; }),
      integer_field(
          "dense_layers", 0, 256, [](auto& c) -> auto& { return c.geometry.dense_layers; }),
      flag_field(
          "router_bias", [](auto& c) -> auto& { return c.geometry.router_bias; }),
      integer_field(
          "q_lora", 0, kMaxWidth, [](auto& c) -> auto& { return c.geometry.q_lora; }),
      integer_field(
          "kv_lora", 0, kMaxWidth, [](auto& c) -> auto& { return c.geometry.kv_lora; }),
      integer_field(
          "nope_dim", 0, 1024, [](auto& c) -> auto& { return c.geometry.nope_dim; }),
      integer_field(
          "rope_dim", 0, 1024, [](auto& c) -> auto& { return c.geometry.rope_dim; }),
      integer_field(
          "v_dim", 0, 1024, [](auto& c) -> auto& { return c.geometry.v_dim; }),
  };
}

std::vector<std::pair<std::string, EffectiveKind>> effective_kinds() {
  using enum EffectiveKind;
  std::vector<std::pair<std::string, EffectiveKind>> kinds;
  for (const auto kind : {none, quantized, adapter, state_space, latent, gradient, optimizer, container})
    kinds.emplace_back(to_string(kind), kind);
  return kinds;
}

std::vector<Field> run_fields() {
  return {
      choice_field<DType>(
          "dtype", {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}},
          [](auto& c) -> auto& { return c.dtype; }),
      choice_field<Arithmetic>(
          "arithmetic",
          {{"native", Arithmetic::native}, {"tree", Arithmetic::tree}, {"exact", Arithmetic::exact}},
          [](auto& c) -> auto& { return c.arithmetic; }),
      choice_field<TreeShape>(
          "tree_shape", {{"halving", TreeShape::halving}, {"linear", TreeShape::linear}},
          [](auto& c) -> auto& { return c.tree_shape; }),
      integer_field(
          "leaf", 1, kMaxWidth, [](auto& c) -> auto& { return c.leaf; }),
      integer_field(
          "key_block", 1, kMaxTokens, [](auto& c) -> auto& { return c.key_block; }),
      list_field<int>(
          "degrees", "all", 1, 1024, true, [](auto& c) -> auto& { return c.degrees; }),
      choice_field<CoverExchange>(
          "exchange",
          {{"automatic", CoverExchange::automatic},
           {"one_shot", CoverExchange::one_shot},
           {"two_shot", CoverExchange::two_shot}},
          [](auto& c) -> auto& { return c.exchange; }),
      choice_field<WeightStyle>(
          "weights", {{"powered", WeightStyle::powered}, {"recorded", WeightStyle::recorded}},
          [](auto& c) -> auto& { return c.weights; }),
      layout_field(
          "source", [](auto& c) -> auto& { return c.source; }),
      layout_field(
          "target", [](auto& c) -> auto& { return c.target; }),
      layout_field(
          "via", [](auto& c) -> auto& { return c.via; }),
      flag_field(
          "sequence_parallel", [](auto& c) -> auto& { return c.sequence_parallel; }),
      list_field<std::int64_t>(
          "context_ends", "blocks", 1, kMaxTokens, true, [](auto& c) -> auto& { return c.context_ends; }),
      integer_field(
          "batch", 1, kMaxTokens, [](auto& c) -> auto& { return c.batch; }),
      integer_field(
          "length", 1, kMaxTokens, [](auto& c) -> auto& { return c.length; }),
      list_field<std::int64_t>(
          "lengths", "even", 1, kMaxTokens, false, [](auto& c) -> auto& { return c.lengths; }),
      list_field<std::int64_t>(
          "chunks", "whole", 1, kMaxTokens, true, [](auto& c) -> auto& { return c.chunks; }),
      choice_field<EffectiveKind>(
          "effective", effective_kinds(), [](auto& c) -> auto& { return c.effective; }),
      {"seed", "a whole number in 0..18446744073709551615",
       [](const Case& c) { return std::to_string(c.seed); },
       [](Case& c, std::string_view text) {
         if (!parse_number(text, c.seed)) refuse("seed", text, "a whole number in 0..18446744073709551615");
       }},
      fault_field(),
      input_field(),
  };
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> list = geometry_fields();
    for (Field& field : family_fields()) list.push_back(std::move(field));
    for (Field& field : run_fields()) list.push_back(std::move(field));
    return list;
  }();
  return all;
}

const Field& field_named(std::string_view key) {
  std::vector<std::string> known;
  for (const Field& field : fields()) {
    if (field.key == key) return field;
    known.push_back(field.key);
  }
  const std::string nearest = nearest_name(key, known);
  throw InvalidCase(fmt::format("unknown key '{}'{}; known are {}", shown(key),
                                nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest),
                                fmt::join(known, " ")));
}

}  // namespace shardcheck
