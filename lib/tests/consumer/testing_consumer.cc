// Puts a subject of its own under the installed laws: ours must pass, one that loses data must fail.
#include <cstdio>
#include <memory>

#include "shardcheck/mutators/fault.h"
#include "shardcheck/properties/law.h"

namespace {

using namespace shardcheck;

/// Every rank gets rank 0's shards.
class LoadsRankZeroEverywhere : public Subject {
 public:
  std::string name() const override { return "loads_rank_zero_everywhere"; }
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    ShardedTensors shards = Subject::split(full, target);
    for (auto& [tensor, ranks] : shards) {
      for (Tensor& shard : ranks) shard = ranks.front();
    }
    return shards;
  }
};

bool holds(Subject& subject) {
  const Case c = parse_case("gather_inverts_split heads=2 kv_heads=2 target=seed:tp2");
  const Outcome outcome = check_case(law_named(c.law), c, subject);
  std::printf("%s: %s %s\n", subject.name().c_str(), std::string(to_string(outcome.verdict)).c_str(),
              outcome.message.c_str());
  return outcome.verdict == Verdict::passed;
}

}  // namespace

int main() {
  Subject ours;
  LoadsRankZeroEverywhere wrong;
  const bool both = holds(ours) && !holds(wrong);
  return both && !all_faults().empty() ? 0 : 1;
}
