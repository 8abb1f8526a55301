// Detection power: how small a model, how small a deviation and how small a change each oracle still sees.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/mutators/fault.h"
#include "shardcheck/text/progress.h"

namespace shardcheck {

/// How often something was detected, with the bounds of its 95 % Wilson interval.
struct Rate {
  std::int64_t detected = 0;
  std::int64_t trials = 0;
  double share() const;  // 0 without a trial
  double low() const;    // 0 without a trial
  double high() const;   // 1 without a trial
};

/// The smallest model in which one oracle sees a fault.
struct SmallestModel {
  std::string judge = {};       // "layout", "exact", "tree", "native", or the law that alone sees the fault
  bool expected = false;        // the fault declares that it is detected
  std::int64_t cases = 0;       // it acted on, up to the first that showed it
  bool detected = false;        // in one of them
  std::int64_t parameters = 0;  // of the minimal case, found in at most 200 steps
  std::string minimal = {};     // that case, as a line to replay but for `layout`
};

/// The shards of a fault are W + a (W_faulty - W), rounded to the dtype, a = 2^-k. Over the cases, the least
/// and the largest k such that the oracle sees a = 2^-k and not 2^-(k+1); -1: not even the whole fault.
struct Amplitude {
  std::int64_t cases = 0;
  int least = 0, largest = 0;
};

struct FaultPower {
  std::string fault;  // with its argument
  FaultFamily family = 'F';
  std::vector<SmallestModel> models = {};
  /// Of faults that act on shards and leave them finite.
  std::optional<Amplitude> layout = {}, exact = {}, native = {};
  bool acted() const;
  /// "FAULT is not seen under JUDGE in N cases", for every judge that has to see it.
  std::vector<std::string> problems() const;
  std::vector<std::string> gaps() const;  // judges that have to see it and were asked in no case
};

/// One hard place and what each oracle says about a mistake there.
struct HardPlace {
  std::string_view name;
  std::string_view mistake;  // one present-tense sentence
  std::string case_line;
  bool reaches_logits = true;  // false: only layout can see it, by construction
  Outcome layout, exact, native;
  std::vector<std::string> problems() const;  // layout does not see it, or exact sees what no logit has
};

/// What is changed in one rank's part of a parameter.
enum class Change : std::uint8_t {
  element,  // one value by 1 ULP
  row,      // one row becomes another one
  shard     // all of it becomes the next rank's, or its rows in reverse where ranks hold the same
};
inline constexpr std::array kChanges = {Change::element, Change::row, Change::shard};
std::string_view to_string(Change change) noexcept;

/// Detection of changes to parameters of one role.
struct RolePower {
  std::string_view family;  // "llama", "moe", "gpt"
  std::string role;
  bool reaches_logits = true;  // false: embedding rows that no token looks up, experts that none is routed to
  std::array<Rate, 3> layout = {}, exact = {};  // by Change
  std::vector<std::string> problems() const;    // layout below 1, exact below 1 for a whole shard
  std::vector<std::string> gaps() const;        // changes that were tried in no trial
};

struct PowerOptions {
  std::uint64_t seed = 0;
  std::vector<FaultChoice> faults;  // empty: all
  std::int64_t cases = 5;           // per fault
  std::int64_t trials = 100;        // per role and change
  int jobs = 1;
  ProgressSink progress;
};

/// Rows by family and fault, controls that are right left out; the same for any number of jobs.
std::vector<FaultPower> measure_faults(const PowerOptions& options);
std::vector<HardPlace> measure_hard_places(const PowerOptions& options);
/// Every role of the logical tensors of a Llama, a mixture of experts and a GPT. Rows of the embedding and
/// experts that no token needs have rows of their own, "embed, unused"; the others leave them alone.
std::vector<RolePower> measure_roles(const PowerOptions& options);

}  // namespace shardcheck
