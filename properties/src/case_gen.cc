#include "case_gen.h"

#include <rapidcheck.h>

#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

rc::Shrinkable<Case> with_shrinks(Case c) {
  return rc::shrinkable::shrinkRecur(
      std::move(c), [](const Case& value) { return rc::seq::fromContainer(shrink_case(value)); });
}

}  // namespace

rc::Gen<Case> case_gen(const Law& law) {
  return [draw = law.draw](rc::Random random, int) {
    Stream stream(random.next());
    return with_shrinks(draw(stream));
  };
}

Case draw_case_at(const Law& law, std::uint64_t seed, std::uint64_t index) {
  const rc::Random random(rc::Random::Key{stream_key(seed, law.name), index, 0, 0});
  return case_gen(law)(random).value();
}

Case shrink_while_failing(const Case& failing, const std::function<bool(const Case&)>& fails,
                          const std::function<bool()>& stop) {
  rc::Shrinkable<Case> current = with_shrinks(failing);
  bool improved = true;
  while (improved && !stop()) {
    improved = false;
    rc::Seq<rc::Shrinkable<Case>> shrinks = current.shrinks();
    while (!stop()) {
      rc::Maybe<rc::Shrinkable<Case>> candidate = shrinks.next();
      if (!candidate) break;
      if (!fails(candidate->value())) continue;
      current = *candidate;
      improved = true;
      break;
    }
  }
  return current.value();
}

}  // namespace shardcheck
