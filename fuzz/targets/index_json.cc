// The index of a sharded Hugging Face checkpoint.
#include <fmt/format.h>

#include "json_editor.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/fuzz/target.h"

namespace shardcheck::fuzz::targets {
namespace {

using Index = std::map<std::string, std::string>;

void require_inside_the_folder(const Index& index) {
  if (index.empty()) throw Finding("an empty map is accepted");
  for (const auto& [tensor, file] : index) {
    if (file.empty() || file == "." || file == ".." || file.find_first_of("/\\") != std::string::npos ||
        file.find('\0') != std::string::npos)
      throw Finding(fmt::format("tensor '{}': the file name '{}' is accepted", tensor, file));
  }
}

void check(std::string_view input) {
  Index index;
  try {
    index = parse_index(input, "input");
  } catch (const InvalidCheckpoint&) {
    return;
  }
  require_inside_the_folder(index);
  const std::string text = print_json(Json{{"weight_map", index}});
  if (parse_index(text, "rewritten") != index)
    throw Finding(fmt::format("another map comes back from {}", text));
}

std::string draw(Stream& stream) {
  Json map = Json::object();
  const std::int64_t files = stream.integer(1, 3);
  for (std::int64_t tensors = stream.integer(1, 6); tensors > 0; --tensors)
    map[fmt::format("model.layers.{}.mlp.up_proj.weight", tensors)] =
        fmt::format("model-{:05}-of-{:05}.safetensors", stream.integer(1, files), files);
  Json document = {{"metadata", {{"total_size", stream.integer(0, 1 << 20)}}}, {"weight_map", map}};
  for (std::int64_t edits = stream.integer(0, 2); edits > 0; --edits) edit_json(document, stream);
  return print_json(document);
}

}  // namespace

const Target& index_json() {
  static const Target target{.name = "index_json",
                             .claim =
                                 "An index that is accepted names files of its own folder alone, and says "
                                 "the same when it is written anew.",
                             .format = InputFormat::json,
                             .max_bytes = 16384,
                             .check = check,
                             .draw = draw};
  return target;
}

}  // namespace shardcheck::fuzz::targets
