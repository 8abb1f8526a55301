// A case: one verification problem as a pure value, spelled as one line of text:
//   LAW key=value ...
// Any order of keys; every key has a default that is its simplest value and the printer omits defaults, so a
// shorter line is a simpler case.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/arithmetic/contract.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/geometry.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/text/nearest_name.h"

namespace shardcheck {

/// A case line that does not parse. Names the key, its value and what is allowed, with the nearest known key.
class InvalidCase : public InvalidInput {
 public:
  using InvalidInput::InvalidInput;
};

/// Tensors that no forward pass here reads. Laws and faults about them judge effective weights: what the
/// engine of each rank would compute with, dequantised, adapted, summed or read back.
enum class EffectiveKind : std::uint8_t {
  none,
  quantized,
  adapter,
  state_space,
  latent,
  gradient,
  optimizer,
  container
};
std::string_view to_string(EffectiveKind kind) noexcept;

/// The frozen defaults of the case line: the simplest model that has every part.
Geometry default_geometry();

struct Case {
  std::string law;                         // first word
  Geometry geometry = default_geometry();  // d_model layers heads kv_heads head_dim ffn vocab norm_eps rope
                                           // rope_theta tied qkv_bias o_bias qk_norm
  DType dtype = DType::f32;                // dtype=f32|bf16|f16
  Arithmetic arithmetic = Arithmetic::native;  // arithmetic=native|tree|exact
  TreeShape tree_shape = TreeShape::halving;   // the contract of tree: tree_shape=halving|linear
  std::int64_t leaf = 128;                     // widest leaf
  std::int64_t key_block = 64;                 // positions per leaf of the softmax sums
  std::vector<int> degrees;                    // degrees=1,2,4; default: all that the geometry divides by
  CoverExchange exchange = CoverExchange::automatic;  // exchange=automatic|one_shot|two_shot
  LayoutName source;                                  // source=seed
  LayoutName target;                                  // target=seed
  LayoutName via;                                     // via=seed: the middle layout of reshard_composes
  WeightStyle weights = WeightStyle::powered;         // weights=powered|recorded
  bool sequence_parallel = false;                     // sequence_parallel=true
  std::vector<std::int64_t> context_ends;             // context_ends=64,192: see Execution; default: blocks
  std::int64_t batch = 1;
  std::int64_t length = 32;           // tokens per sequence
  std::vector<std::int64_t> lengths;  // lengths=3,17: of every sequence, in place of batch and length
  std::vector<std::int64_t>
      chunks;  // chunks=5,12: positions at which chunks of prefill begin; default: whole
  EffectiveKind effective = EffectiveKind::none;  // effective=adapter: of laws about effective weights
  std::uint64_t seed = 0;
  std::string fault;  // NAME or NAME:ARGUMENT
  std::string input;  // free text of laws about text; quoted, JSON string escapes

  bool operator==(const Case&) const = default;
};

/// Parses one line (at most 4096 bytes). Unknown key, duplicate key, out-of-range value, a missing law:
/// InvalidCase. Law and fault names are checked for spelling (lower-case words), not for existence.
Case parse_case(std::string_view line);

/// Canonical text: law, then the keys that differ from their defaults, in a fixed order.
/// parse_case(print_case(c)) == c.
std::string print_case(const Case& c);

/// The contract that the case's keys fix: of the geometry, dtype and contract keys, never of source and
/// target. Throws InvalidCase when a degree of `degrees` does not divide the geometry.
Contract contract_of(const Case& c);

/// How the case's target runs: stages as its layout gives them, and the keys of execution. Throws
/// UnsupportedLayout when layers do not spread over the stages.
Execution execution_of(const Case& c);

/// Throws InvalidCase naming the target when running the case on its mesh, which repeats what ranks share,
/// would take hours or tens of gigabytes.
void require_bounded_execution(const Case& c);

/// Length of every sequence.
std::vector<std::int64_t> lengths_of(const Case& c);

/// Keys of the grammar with their allowed values and defaults, for help texts and the nearest-key hint.
struct CaseKey {
  std::string key;
  std::string allowed;
  std::string default_value;
};
const std::vector<CaseKey>& case_keys();

/// Sets one field from text exactly as the parser does. Throws InvalidCase.
void set_case_key(Case& c, std::string_view key, std::string_view value);
/// Text of one field. Throws InvalidCase for an unknown key.
std::string get_case_key(const Case& c, std::string_view key);

/// Case files of corpus/: '#' comment lines and "key: value" headers in them, then one case line.
struct CaseFile {
  std::vector<std::pair<std::string, std::string>>
      header;  // from "# key: value" lines; "verdict" is the recorded one
  Case value;
};
CaseFile parse_case_file(std::string_view text, const std::string& origin);
std::string print_case_file(const CaseFile& file);

/// Batches of corpus/: the same with any number of case lines, for all of which the header speaks.
struct CaseBatch {
  struct Line {
    int number = 0;  // in the file, the first being 1
    Case value;
  };
  std::vector<std::pair<std::string, std::string>> header;
  std::vector<Line> lines;
};
/// Throws InvalidCase naming origin and line: what does not parse, more than 10 000 cases, none.
CaseBatch parse_case_batch(std::string_view text, const std::string& origin);

}  // namespace shardcheck
