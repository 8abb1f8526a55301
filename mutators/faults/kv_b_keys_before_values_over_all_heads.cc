// kv_b, whose rows are a head's key and value in turn, read as all keys and then all values.
#include "latent.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class KeysFirst final : public effective::LatentEngine {
  std::int64_t key_row(const effective::LatentSizes& s, const effective::KvRow& at) const override {
    return at.head * s.nope + at.row;
  }
  std::int64_t value_row(const effective::LatentSizes& s, const effective::KvRow& at) const override {
    return s.heads * s.nope + at.head * s.value + at.row;
  }
};

std::optional<std::string> equivalent(const Case& c, std::string_view) {
  if (effective::latent_sizes(c).heads > 1) return std::nullopt;
  return "one head on each rank: its key and then its value either way";
}

}  // namespace

const Fault& kv_b_keys_before_values_over_all_heads() {
  static const Fault fault{
      .name = "kv_b_keys_before_values_over_all_heads",
      .family = 'H',
      .level = FaultLevel::plan,
      .claim =
          "The up-projection of the latent, whose rows are each head's key and value, is read as the keys of "
          "all heads and then the values of all heads.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = equivalent,
      .kind = EffectiveKind::latent,
      .effective = [](const Case& c, std::string_view) { return effective::loaded_latent(c, KeysFirst()); }};
  return fault;
}

}  // namespace shardcheck::faults
