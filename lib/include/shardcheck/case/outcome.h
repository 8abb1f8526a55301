// What a law says about a case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardcheck {

/// Never just two: a case that could not be judged is not a case that passed.
enum class Verdict : std::uint8_t { passed, failed, vacuous, mistrusted, skipped, timeout, error };
std::string_view to_string(Verdict verdict) noexcept;
std::optional<Verdict> verdict_from(std::string_view text) noexcept;

/// What differed, as far as the law knows it. Unset fields are -1, NaN or empty.
struct Difference {
  std::string parameter;  // first mismatching parameter
  int source_degree = 0, target_degree = 0;
  int rank = -1;
  double max_abs = 0.0;           // largest |logit difference|; infinity when NaN is involved
  double threshold = 0.0;         // 0 when the comparison is bit for bit
  std::int64_t worst_index = -1;  // flat index of the worst element
  std::string worst_place;        // that element: "logits[12, 57]" (token, vocabulary id) or
                                  // "layers.0.down[2, 5]", local to the rank when there is one
  std::string expected, actual;   // values or origins there
};

struct Outcome {
  Verdict verdict = Verdict::passed;
  std::string message;  // one sentence; empty when passed
  std::optional<Difference> difference;
  std::vector<std::string> labels;  // counted by the runner: "uneven", "kv_heads<target_degree", ...
  std::uint64_t digest = 0;         // of everything computed: two runs of a case must agree
  double deviation = 0.0;           // largest deviation seen, also when passed
  double threshold = 0.0;

  bool refused =
      false;  // with Verdict::error: the case asks for what is not allowed, and says so in `message`

  static Outcome pass() { return {}; }
  static Outcome fail(std::string message, std::optional<Difference> difference = {});
  static Outcome of(Verdict verdict, std::string message);
};

}  // namespace shardcheck
