// The llama2.c tokenizer file: byte-pair vocabulary with merge scores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shardcheck {

class Tokenizer {
 public:
  static constexpr std::int32_t kBegin = 1;  // BOS
  static constexpr std::int32_t kEnd = 2;    // EOS

  /// Reads i32 longest token, then per token f32 score, i32 length and bytes. Throws IoError when the file
  /// cannot be read, InvalidCheckpoint naming file and token when it does not hold `vocab` tokens exactly.
  static Tokenizer load(const std::filesystem::path& file, std::int64_t vocab);

  /// BOS, then the text: greedy merges by best score, bytes as <0xNN> tokens where no token fits. Throws
  /// InvalidInput when the vocabulary has no token for a byte.
  std::vector<std::int32_t> encode(std::string_view text) const;

  /// Text of the tokens up to the next BOS or EOS; the space after BOS is dropped. Ids must be in the
  /// vocabulary (std::out_of_range).
  std::string decode(const std::vector<std::int32_t>& ids) const;

 private:
  std::int32_t find(std::string_view piece) const;  // -1 when absent
  std::vector<std::int32_t> pieces_of(std::string_view text) const;

  std::vector<std::string> pieces_;
  std::vector<float> scores_;
  std::map<std::string, std::int32_t, std::less<>> ids_;
};

}  // namespace shardcheck
