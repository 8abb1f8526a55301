// Weights that move again and again, and change between: a case line, then a step a line,
//   reshard LAYOUT     to another layout
//   weights SEED       other weights, split to the layout of the moment
#include <fmt/format.h>

#include <charconv>

#include "case_input.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/properties/generator.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck::fuzz::targets {
namespace {

constexpr Bounds kBounds{.width = 64, .layers = 3, .ranks = 16, .elements = 1 << 15};
constexpr int kMostSteps = 12;

std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// Where the weights are, by the engine under test, and what they are.
class Job {
 public:
  explicit Job(Case c)
      : case_(std::move(c)), engine_(engine_under_test(case_)), layout_(bounded_layout(case_.source)) {
    set_weights(case_.seed);
  }

  /// False where the step is none, or asks for what is refused.
  bool take(std::string_view step) {
    constexpr std::string_view kReshard = "reshard ", kWeights = "weights ";
    if (step.starts_with(kReshard)) {
      reshard_to(bounded_layout(parse_layout_name(step.substr(kReshard.size()))));
      return true;
    }
    std::uint64_t seed = 0;
    if (!step.starts_with(kWeights)) return false;
    step.remove_prefix(kWeights.size());
    const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), seed);
    if (error != std::errc() || end != step.data() + step.size()) return false;
    set_weights(seed);
    return true;
  }

  void require_right(std::string_view step) const {
    if (digest_of(layout_, shards_) != digest_of(full_))
      throw Finding(fmt::format("after '{}' the digest is {}, the model's {}", step,
                                digest_of(layout_, shards_).hex(), digest_of(full_).hex()));
    for (const auto& [name, ranks] : split(full_, layout_)) {
      const auto found = shards_.find(name);
      for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        if (found == shards_.end() || !ranks[rank].same_bytes(found->second.at(rank)))
          throw Finding(fmt::format("after '{}' rank {} has other bytes in {}", step, rank, name));
    }
  }

 private:
  Layout bounded_layout(const LayoutName& name) const {
    Case c = case_;
    c.source = name;
    if (!is_within(kBounds, c)) throw InvalidLayout("more ranks than a second allows");
    Layout layout = make_layout(name, case_.geometry);
    if (!keeps_bits(layout)) throw InvalidLayout("a layout that rounds");
    return layout;
  }

  void set_weights(std::uint64_t seed) {
    full_ = make_weights(case_.geometry, WeightStyle::powered, seed, case_.dtype);
    shards_ = engine_->split(full_, layout_);
  }

  void reshard_to(Layout target) {
    shards_ = engine_->reshard(shards_, layout_, target);
    layout_ = std::move(target);
  }

  Case case_;
  std::shared_ptr<Subject> engine_;
  Layout layout_;
  TensorMap full_;
  ShardedTensors shards_;
};

void check(std::string_view input) {
  const auto c = read_case(next_line(input));
  if (!c || !c->fault.empty() || !is_within(kBounds, *c)) return;
  try {
    Job job(*c);
    job.require_right("the first split");
    for (int steps = 0; steps < kMostSteps && !input.empty(); ++steps) {
      const std::string_view step = next_line(input);
      if (!job.take(step)) return;
      job.require_right(step);
    }
  } catch (const InvalidShards& refusal) {
    throw Finding(fmt::format("the engine's own shards are refused: {}", refusal.what()));
  } catch (const InvalidInput&) {
  } catch (const UnsupportedLayout&) {
  }
}

std::string draw(Stream& stream) {
  Case c = drawn_within(kBounds, [&] {
    return draw_case(stream, {.forward = false, .any_dtype = true, .three_layouts = true, .meshes = true});
  });
  c.law = "every_sync_delivers_its_weights";
  std::string text = print_case(c) + "\n";
  for (std::int64_t steps = stream.integer(1, 5); steps > 0; --steps)
    text +=
        stream.chance(1, 3)
            ? fmt::format("weights {}\n", stream.integer(0, 99))
            : fmt::format("reshard {}\n", to_string(stream.pick<LayoutName>({c.source, c.target, c.via})));
  return text;
}

}  // namespace

const Target& sync_sequence() {
  static const Target target{
      .name = "sync_sequence",
      .claim =
          "After any sequence of reshards and changes of weights every rank holds what "
          "splitting the last weights gives.",
      .format = InputFormat::text,
      .max_bytes = 4096,
      .check = check,
      .draw = draw};
  return target;
}

}  // namespace shardcheck::fuzz::targets
