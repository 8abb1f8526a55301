#include "shardcheck/case/subject.h"

#include <gtest/gtest.h>

#include "shardcheck/case/case.h"

namespace shardcheck {
namespace {

Geometry small_geometry() {
  Geometry g = default_geometry();
  g.n_heads = 4;
  g.n_kv_heads = 2;
  return g;
}

Layout seed_layout(int degree) { return LayoutTable::built_in("seed").instantiate(small_geometry(), degree); }

TensorMap small_weights() { return make_weights(small_geometry(), WeightStyle::fingerprint, 3, DType::f32); }

void expect_same_shards(const ShardedTensors& expected, const ShardedTensors& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, ranks] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    const std::vector<Tensor>& others = actual.find(name)->second;
    ASSERT_EQ(ranks.size(), others.size()) << name;
    for (std::size_t r = 0; r < ranks.size(); ++r) EXPECT_TRUE(ranks[r].same_bytes(others[r])) << name << r;
  }
}

TEST(SubjectTest, TheDefaultSubjectIsThisLibrary) {
  Subject subject;
  const Layout one = seed_layout(1);
  const Layout two = seed_layout(2);
  const ShardedTensors shards = subject.split(small_weights(), two);
  expect_same_shards(split(small_weights(), two), shards);
  expect_same_shards(reshard(shards, two, one), subject.reshard(shards, two, one));
  const TensorMap gathered = subject.gather(shards, two);
  for (const auto& [name, tensor] : small_weights()) {
    ASSERT_TRUE(gathered.contains(name)) << name;
    EXPECT_TRUE(gathered.find(name)->second.same_bytes(tensor)) << name;
  }
  EXPECT_EQ(subject.collective(2)->degree(), 2);
  EXPECT_EQ(&subject.steps(), &right_steps());
}

/// Counts calls, so that a decorator that skips its inner subject is seen.
class CountingSubject : public Subject {
 public:
  std::string name() const override { return "counting"; }
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    ++calls;
    return Subject::split(full, target);
  }
  TensorMap gather(const ShardedTensors& shards, const Layout& source) override {
    ++calls;
    return Subject::gather(shards, source);
  }
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ++calls;
    return Subject::reshard(shards, source, target);
  }
  std::unique_ptr<Collective> collective(int degree) override {
    ++calls;
    return Subject::collective(degree);
  }
  const ForwardSteps& steps() const override {
    ++calls;
    return Subject::steps();
  }
  mutable int calls = 0;
};

TEST(SubjectTest, ADecoratorForwardsEverything) {
  const auto inner = std::make_shared<CountingSubject>();
  SubjectDecorator decorator(inner);
  EXPECT_EQ(decorator.name(), "counting");
  const ShardedTensors shards = decorator.split(small_weights(), seed_layout(2));
  (void)decorator.gather(shards, seed_layout(2));
  (void)decorator.reshard(shards, seed_layout(2), seed_layout(1));
  (void)decorator.collective(2);
  (void)decorator.steps();
  EXPECT_EQ(inner->calls, 5);
}

}  // namespace
}  // namespace shardcheck
