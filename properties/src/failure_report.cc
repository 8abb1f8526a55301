#include <fmt/format.h>

#include <cmath>

#include "shardcheck/properties/runner.h"
#include "shardcheck/text/shell_quote.h"

namespace shardcheck {
namespace {

std::string row(std::string_view name, std::string_view value) {
  return value.empty() ? std::string() : fmt::format("    {:<24}{}\n", name, value);
}

std::string number_or_nothing(std::int64_t value, std::int64_t unset) {
  return value == unset ? std::string() : std::to_string(value);
}

std::string annotations(const Failure& failure) {
  std::string text;
  for (const std::string& key : failure.irrelevant)
    text += fmt::format("    {}={} does not matter: every other value tried fails too\n", key,
                        get_case_key(failure.minimal, key));
  return text;
}

/// Two figures and how often the one holds the other: "2.5, 2500 times the threshold 0.001".
std::string deviation_text(const Difference& d) {
  if (!(d.max_abs > 0.0) && !std::isnan(d.max_abs)) return "";
  if (!(d.threshold > 0.0)) return fmt::format("{:.4g}", d.max_abs);
  return fmt::format("{:.4g}, {:.3g} times the threshold {:.4g}", d.max_abs, d.max_abs / d.threshold,
                     d.threshold);
}

/// The flat index says nothing to a person; it stands alone only where a law has no better name.
std::string place_text(const Difference& d) {
  if (d.worst_place.empty()) return number_or_nothing(d.worst_index, -1);
  if (d.worst_place.starts_with("logits[")) return d.worst_place + "  (token, vocabulary id)";
  return d.rank < 0 ? d.worst_place : fmt::format("{}  (local to rank {})", d.worst_place, d.rank);
}

std::string indented(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += fmt::format("    {}\n", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

std::string describe_difference(const Difference& d) {
  std::string text = row("parameter", d.parameter);
  text += row("source degree", number_or_nothing(d.source_degree, 0));
  text += row("target degree", number_or_nothing(d.target_degree, 0));
  text += row("max abs deviation", deviation_text(d));
  text += row("worst index", place_text(d));
  text += row("expected", d.expected);
  text += row("actual", d.actual);
  return text + row("rank", number_or_nothing(d.rank, -1));
}

std::string describe_failure(const Law& law, const Failure& failure, const std::string& program) {
  std::string text = fmt::format("law {}: {}\n", law.name, law.claim);
  text += fmt::format("  original case:\n    {}\n", print_case(failure.original));
  text +=
      fmt::format("  minimal case ({} tried):\n    {}\n", failure.shrink_steps, print_case(failure.minimal));
  text += annotations(failure);
  text += fmt::format("  {}: {}\n",
                      failure.nondeterministic ? "nondeterministic" : to_string(failure.outcome.verdict),
                      failure.outcome.message);
  if (failure.outcome.difference) text += describe_difference(*failure.outcome.difference);
  text += fmt::format("  replay:\n    {} replay {}\n", program, shell_quote(print_case(failure.minimal)));
  return text + "  regression file:\n" + indented(regression_file(law, failure));
}

std::string regression_file(const Law& law, const Failure& failure) {
  CaseFile file;
  file.header = {{"law", std::string(law.name)},
                 {"verdict", std::string(to_string(failure.outcome.verdict))},
                 {"why", failure.outcome.message}};
  file.value = failure.minimal;
  return print_case_file(file);
}

}  // namespace shardcheck
