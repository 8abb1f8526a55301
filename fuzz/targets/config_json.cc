// config.json of a Hugging Face checkpoint.
#include <fmt/format.h>

#include "json_editor.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/fuzz/target.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck::fuzz::targets {
namespace {

/// Names and shapes alone; 4 layers say as much as a thousand.
void require_layout_of(Geometry geometry) {
  geometry.n_layers = std::min<std::int64_t>(geometry.n_layers, 4);
  const Layout layout = LayoutTable::built_in("hf-llama").instantiate(geometry, 1);
  std::size_t held = 0;
  for (const LayoutEntry& entry : layout.entries) held += entry.tied ? 0 : entry.parts.size();
  if (held != logical_tensors(geometry).size())
    throw Finding(fmt::format("the layout of {} holds {} tensors", to_string(geometry), held));
}

void check(std::string_view input) {
  HuggingFaceConfig config;
  try {
    config = parse_config(input, "input");
  } catch (const InvalidCheckpoint&) {
    return;
  }
  try {
    validate(config.geometry);
    if (config.max_positions < 1)
      throw Finding(fmt::format("max_positions {} is accepted", config.max_positions));
    require_layout_of(config.geometry);
  } catch (const InvalidInput& error) {
    throw Finding(fmt::format("a geometry is accepted that is none: {}", error.what()));
  }
}

std::string draw(Stream& stream) {
  const Geometry g = draw_case(stream, {.forward = false}).geometry;
  const std::string type = stream.pick<std::string>({"llama", "mistral", "qwen2", "qwen3"});
  Json config = {{"model_type", type},
                 {"hidden_size", g.d_model},
                 {"num_hidden_layers", g.n_layers},
                 {"num_attention_heads", g.n_heads},
                 {"num_key_value_heads", g.n_kv_heads},
                 {"head_dim", g.head_dim},
                 {"intermediate_size", g.ffn},
                 {"vocab_size", g.vocab},
                 {"rms_norm_eps", g.norm_eps},
                 {"rope_theta", g.rope_theta},
                 {"tie_word_embeddings", g.tied},
                 {"max_position_embeddings", 2048},
                 {"hidden_act", "silu"},
                 {"torch_dtype", stream.pick<std::string>({"float32", "bfloat16", "float16"})}};
  for (std::int64_t edits = stream.integer(0, 3); edits > 0; --edits) edit_json(config, stream);
  return print_json(config);
}

}  // namespace

const Target& config_json() {
  static const Target target{.name = "config_json",
                             .claim =
                                 "A config that is accepted gives a valid geometry whose layout holds every "
                                 "tensor; any other text is refused.",
                             .format = InputFormat::json,
                             .max_bytes = 16384,
                             .check = check,
                             .draw = draw};
  return target;
}

}  // namespace shardcheck::fuzz::targets
