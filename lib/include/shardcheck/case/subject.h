// The code under test. The default subject is this library; a user's subject overrides what it implements; a
// fault is a subject that wraps another and gets one thing wrong.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shardcheck/comm/collective.h"
#include "shardcheck/layout/quantized.h"
#include "shardcheck/model/forward_steps.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {

class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string name() const { return "shardcheck"; }

  virtual ShardedTensors split(const TensorMap& full, const Layout& target);
  virtual TensorMap gather(const ShardedTensors& shards, const Layout& source);
  virtual ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target);
  /// The copies that a reshard would make.
  virtual Plan plan(const Layout& source, const Layout& target);

  /// Stored tensors of every rank of a quantised weight. Throws UnsupportedLayout naming the weight and the
  /// degree where a rank would hold a part of a word, group or block.
  virtual std::vector<TensorMap> split_quantized(const QuantizedMatrix& matrix, const TensorMap& full,
                                                 ParallelStyle style, int degree);

  /// The collective and the steps the sharded model runs with.
  virtual std::unique_ptr<Collective> collective(int degree);
  virtual const ForwardSteps& steps() const;
};

/// A subject that forwards everything to another: the base of faults.
class SubjectDecorator : public Subject {
 public:
  explicit SubjectDecorator(std::shared_ptr<Subject> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    return inner_->split(full, target);
  }
  TensorMap gather(const ShardedTensors& s, const Layout& source) override {
    return inner_->gather(s, source);
  }
  ShardedTensors reshard(const ShardedTensors& s, const Layout& source, const Layout& target) override {
    return inner_->reshard(s, source, target);
  }
  Plan plan(const Layout& source, const Layout& target) override { return inner_->plan(source, target); }
  std::vector<TensorMap> split_quantized(const QuantizedMatrix& matrix, const TensorMap& full,
                                         ParallelStyle style, int degree) override {
    return inner_->split_quantized(matrix, full, style, degree);
  }
  std::unique_ptr<Collective> collective(int degree) override { return inner_->collective(degree); }
  const ForwardSteps& steps() const override { return inner_->steps(); }

 protected:
  Subject& inner() { return *inner_; }

 private:
  std::shared_ptr<Subject> inner_;
};

}  // namespace shardcheck
