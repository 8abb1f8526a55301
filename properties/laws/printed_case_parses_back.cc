#include "law_support.h"

namespace shardcheck::laws {
namespace {

using namespace std::string_view_literals;

const std::vector<std::string> kFaults = {"", "some_fault", "some_fault:o_proj"};

/// Doubles with long decimal expansions.
double draw_real(Stream& stream, double low, double high) {
  return low + (high - low) * (static_cast<double>(stream.next_u32()) / 4294967296.0);
}

/// A line with a few bytes inserted, removed or replaced: near enough to a case to reach every branch.
std::string edited(Stream& stream, std::string line) {
  constexpr std::string_view bytes = "ab=: \"\\\t0189-.,_\x01\x7f\0#'"sv;
  for (std::int64_t edits = stream.integer(0, 3); edits > 0; --edits) {
    const auto at = static_cast<std::size_t>(stream.integer(0, static_cast<std::int64_t>(line.size()) - 1));
    const char byte =
        bytes[static_cast<std::size_t>(stream.integer(0, static_cast<std::int64_t>(bytes.size()) - 1))];
    switch (stream.integer(0, 2)) {
      case 0:
        line.insert(at, 1, byte);
        break;
      case 1:
        line[at] = byte;
        break;
      default:
        if (line.size() > 1) line.erase(at, 1);
        break;
    }
  }
  return line;
}

Case draw_any(Stream& stream) {
  Case c = draw_for("printed_case_parses_back", stream,
                    {.any_dtype = true, .three_layouts = true, .any_arithmetic = true});
  c.seed = stream.next_u64();
  c.weights = stream.chance(1, 4) ? WeightStyle::recorded : WeightStyle::powered;
  if (stream.chance(1, 2)) c.geometry.norm_eps = draw_real(stream, 1e-12, 1.0);
  if (stream.chance(1, 2)) c.geometry.rope_theta = draw_real(stream, 1.0, 1e9);
  c.fault = stream.pick(kFaults);
  return c;
}

Outcome check(const Case& c, Subject&) {
  return text_round_trips(c, print_case, [](std::string_view line) { return parse_case(line); });
}

Case draw(Stream& stream) {
  Case c = draw_any(stream);
  c.fault.clear();  // the runner injects a case's fault; text may name any
  if (stream.chance(3, 4)) c.input = edited(stream, print_case(draw_any(stream)));
  return c;
}

}  // namespace

const Law& printed_case_parses_back() {
  static const Law law{
      .name = "printed_case_parses_back",
      .claim = "A printed case parses back to the same case, and printing what was parsed is canonical.",
      .check = check,
      .draw = draw,
      .shares = {{"text_is_a_case", 0.1}, {"text_is_refused", 0.1}, {"16_bit", 0.2}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
