// Whatever the bytes, a reader of the checkpoint folder answers with a value that keeps its promises or with
// InvalidInput or IoError: never another exception, never a crash. Random damage to valid files, from a fixed
// seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoint_fixture.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/checkpoint/shard_folder.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

using namespace shardcheck::testing;
using nlohmann::json;

/// Text that parsers tend to get wrong.
const std::vector<std::string> kTokens = {"-1",
                                          "-0",
                                          "0",
                                          "1",
                                          "1e3",
                                          "1.5",
                                          "1e999",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "4294967296",
                                          "null",
                                          "true",
                                          "\"\"",
                                          "{}",
                                          "[]",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          "\"",
                                          "\\",
                                          "\\u0000",
                                          "\\ud800",
                                          "../",
                                          "/",
                                          "\"F4\"",
                                          "\"F64\"",
                                          "\"__metadata__\"",
                                          "\"dtype\"",
                                          "\"shape\":[0]",
                                          "\"data_offsets\":[0,0]",
                                          "\xEF\xBB\xBF",
                                          "\xC0\x80",
                                          "\xED\xA0\x80",
                                          " ",
                                          std::string(1, '\0'),
                                          std::string(300, '['),
                                          std::string(100, '9')};

const std::vector<json> kValues = {nullptr,
                                   true,
                                   false,
                                   0,
                                   1,
                                   -1,
                                   2,
                                   1.5,
                                   1e300,
                                   -9223372036854775807LL - 1,
                                   18446744073709551615ULL,
                                   "",
                                   "x",
                                   "../x",
                                   "/x",
                                   "F32",
                                   "silu",
                                   "half",
                                   json::array(),
                                   json::object(),
                                   json::array({0, 1}),
                                   json{{"a", json()}}};

/// Damages text, a few edits at a time.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : stream_(seed, "checkpoint mutation") {}

  Stream& stream() { return stream_; }

  std::string damage_bytes(std::string text) {
    for (std::int64_t edits = stream_.integer(1, 4); edits > 0; --edits) edit(text);
    return text;
  }

  /// Stays JSON, so that checks behind the parser are reached.
  std::string damage_structure(const std::string& text) {
    json document = json::parse(text);
    for (std::int64_t edits = stream_.integer(1, 2); edits > 0; --edits) {
      json* const parent = random_object(document);
      if (parent == nullptr) break;
      const auto member = std::next(parent->begin(), index(parent->size()));
      if (stream_.chance(1, 4)) {
        parent->erase(member);
      } else if (stream_.chance(1, 4)) {
        (*parent)[stream_.pick(kNames)] = stream_.pick(kValues);
      } else if (member->is_array() && !member->empty()) {
        (*member)[index(member->size())] = stream_.pick(kValues);
      } else {
        *member = stream_.pick(kValues);
      }
    }
    return document.dump();
  }

  std::string damage_json(const std::string& text) {
    return stream_.chance(1, 2) ? damage_structure(text) : damage_bytes(text);
  }

 private:
  inline static const std::vector<std::string> kNames = {
      "dtype",        "shape",    "data_offsets", "__metadata__", "a",    "note",
      "rope_scaling", "head_dim", "weight_map",   "geometry",     "mesh", "pp"};

  std::size_t index(std::size_t size) {
    return static_cast<std::size_t>(stream_.integer(0, static_cast<std::int64_t>(size) - 1));
  }

  /// A non-empty object at a random depth.
  json* random_object(json& node) {
    if (!node.is_object() || node.empty()) return nullptr;
    json& child = *std::next(node.begin(), index(node.size()));
    json* const deeper = stream_.chance(2, 3) ? random_object(child) : nullptr;
    return deeper == nullptr ? &node : deeper;
  }

  void edit(std::string& text) {
    if (text.empty()) text = stream_.pick(kTokens);
    const std::size_t at = index(text.size());
    const auto length = static_cast<std::size_t>(stream_.integer(1, 12));
    switch (stream_.integer(0, 6)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ 1 << stream_.integer(0, 7));
        break;
      case 1:
        text[at] = static_cast<char>(stream_.integer(0, 255));
        break;
      case 2:
        text.insert(at, stream_.pick(kTokens));
        break;
      case 3:
        text.erase(at, length);
        break;
      case 4:
        text.insert(at, text.substr(index(text.size()), 4 * length));
        break;
      case 5:
        if (stream_.chance(1, 4)) text.resize(at);
        break;
      default:
        replace_number(text, at);
    }
  }

  void replace_number(std::string& text, std::size_t at) {
    constexpr std::string_view kDigits = "0123456789";
    const std::size_t begin = text.find_first_of(kDigits, at);
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    text.replace(begin, end - begin, stream_.pick(kTokens));
  }

  Stream stream_;
};

struct Tally {
  int accepted = 0, refused = 0;
};

/// Calls `read` on `count` damaged inputs. `read` checks what it returns.
Tally survive(int count, const std::function<std::string(int)>& damaged,
              const std::function<void(const std::string&)>& read) {
  Tally tally;
  for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    const std::string input = damaged(i);
    try {
      read(input);
      ++tally.accepted;
    } catch (const InvalidInput& error) {
      ++tally.refused;
      EXPECT_NE(std::string_view(error.what()), "");
    } catch (const IoError&) {
      ++tally.refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "case " << i << " threw another exception: " << error.what() << "\n" << input;
    }
  }
  return tally;
}

/// Guards against a test that damages nothing, or so much that only the first check is reached.
void expect_both(const Tally& tally, int least) {
  EXPECT_GE(tally.accepted, least);
  EXPECT_GE(tally.refused, least);
}

const std::string kHeader = R"({"__metadata__":{"format":"pt"},)"
                            R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                            R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
                            R"("e":{"dtype":"I64","shape":[0,5],"data_offsets":[32,32]},)"
                            R"("s":{"dtype":"F64","shape":[],"data_offsets":[32,40]},)"
                            R"("q":{"dtype":"F4","shape":[6],"data_offsets":[40,43]}})";
constexpr std::size_t kBufferBytes = 43;

void require_dense(const SafetensorsHeader& header, std::size_t file_bytes) {
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    ASSERT_EQ(entry.begin, end);
    ASSERT_GE(entry.end, entry.begin);
    end = entry.end;
    const auto bits = static_cast<std::uint64_t>(size_bits(entry.dtype));
    ASSERT_EQ(static_cast<std::uint64_t>(element_count(entry.shape)) * bits, 8 * (entry.end - entry.begin));
  }
  ASSERT_EQ(header.buffer_offset + end, file_bytes);
}

TEST(Mutation, SafetensorsImages) {
  Mutator mutator(1);
  const TemporaryFolder folder;
  const auto damaged = [&](int i) {
    // Whole images, headers of which the length is kept right, and well-formed headers.
    if (i % 3 == 0) return mutator.damage_bytes(image(kHeader, kBufferBytes));
    return image(i % 3 == 1 ? mutator.damage_bytes(kHeader) : mutator.damage_structure(kHeader),
                 kBufferBytes);
  };
  const Tally tally = survive(10'000, damaged, [&](const std::string& bytes) {
    require_dense(parse(bytes), bytes.size());
    write_file(folder / "t.safetensors", bytes);
    const SafetensorsFile file(folder / "t.safetensors");
    for (const auto& [name, tensor] : file.tensors()) {
      std::size_t sum = 0;
      for (const std::byte byte : tensor.bytes()) sum += std::to_integer<std::size_t>(byte);
      ASSERT_LE(sum, 255 * tensor.bytes().size());
    }
  });
  expect_both(tally, 300);
}

TEST(Mutation, Configs) {
  Mutator mutator(2);
  const std::string config =
      R"({"model_type":"qwen3","hidden_size":24,"num_hidden_layers":2,"num_attention_heads":4,)"
      R"("num_key_value_heads":2,"head_dim":6,"intermediate_size":20,"vocab_size":36,"rms_norm_eps":1e-06,)"
      R"("rope_theta":1000000,"rope_scaling":null,"tie_word_embeddings":true,"use_sliding_window":false,)"
      R"("layer_types":["full_attention","full_attention"],"hidden_act":"silu","eos_token_id":[1,2],)"
      R"("rope_parameters":{"rope_type":"default","rope_theta":1000000.0},"max_position_embeddings":64})";
  const auto damaged = [&](int) { return mutator.damage_json(config); };
  const Tally tally = survive(4'000, damaged, [](const std::string& text) {
    const Geometry geometry = parse_config(text, "config.json").geometry;
    EXPECT_NO_THROW(validate(geometry));
  });
  expect_both(tally, 100);
}

TEST(Mutation, Indices) {
  Mutator mutator(3);
  const std::string index =
      R"({"metadata":{"total_size":123},"weight_map":{"a":"m-00001-of-00002.safetensors",)"
      R"("b":"m-00002-of-00002.safetensors","c":"m-00001-of-00002.safetensors"}})";
  const auto damaged = [&](int) { return mutator.damage_json(index); };
  const Tally tally = survive(3'000, damaged, [](const std::string& text) {
    const auto map = parse_index(text, "index.json");
    ASSERT_FALSE(map.empty());
    for (const auto& [tensor, file] : map) {
      ASSERT_EQ(file.find_first_of(std::string_view("/\\\0", 3)), std::string::npos);
      ASSERT_TRUE(file != "" && file != "." && file != "..");
    }
  });
  expect_both(tally, 100);
}

TEST(Mutation, ShardRecords) {
  Mutator mutator(4);
  const TemporaryFolder folder;
  const Layout layout = make_layout(parse_layout_name("vllm-llama:tp2"), small_geometry());
  write_shard_folder(folder.path(), layout,
                     split(make_weights(small_geometry(), WeightStyle::powered, 1, DType::f32), layout));
  const std::string record = read_file(folder / "shardcheck.json");
  const auto damaged = [&](int) { return mutator.damage_json(record); };
  const Tally tally = survive(3'000, damaged, [&](const std::string& text) {
    write_file(folder / "shardcheck.json", text);
    const auto info = read_shard_folder_info(folder.path());
    ASSERT_TRUE(info.has_value());
    if (info->geometry) {
      EXPECT_NO_THROW(validate(*info->geometry));
    }
    EXPECT_EQ(parse_layout_name(to_string(info->layout)).tp_degree(), info->layout.tp_degree());
  });
  expect_both(tally, 100);
}

/// Damages one file of a checkpoint folder or of a shard folder and reads the folder as a whole.
TEST(Mutation, WholeFolders) {
  Mutator mutator(5);
  const TemporaryFolder folder;
  const Layout layout = make_layout(parse_layout_name("hf-llama"), small_geometry());
  const ShardedTensors shards =
      split(make_weights(small_geometry(), WeightStyle::powered, 1, DType::f32), layout);
  write_shard_folder(folder / "shards", layout, shards);
  fs::create_directory(folder / "model");
  const fs::path shard = folder / "shards" / shard_file_name(0, 1);
  fs::copy_file(shard, folder / "model" / "model.safetensors");
  write_file(folder / "model" / "config.json",
             R"({"model_type":"llama","hidden_size":24,"num_hidden_layers":2,"num_attention_heads":4,)"
             R"("num_key_value_heads":2,"intermediate_size":20,"vocab_size":36,"rms_norm_eps":1e-05})");
  const std::string whole = read_file(shard);
  const std::string head = whole.substr(0, whole.size() - 20'000);
  ASSERT_GT(whole.size(), 20'000U);
  const auto damaged = [&](int) { return mutator.damage_bytes(head) + whole.substr(head.size()); };
  const Tally tally = survive(1'000, damaged, [&](const std::string& bytes) {
    write_file(shard, bytes);
    write_file(folder / "model" / "model.safetensors", bytes);
    EXPECT_EQ(read_shard_folder(folder / "shards", layout).size(), layout.entries.size());
    EXPECT_EQ(load_checkpoint(folder / "model").logical.size(), layout.entries.size());
  });
  expect_both(tally, 20);
}

}  // namespace
}  // namespace shardcheck
