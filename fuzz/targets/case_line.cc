// The grammar of case lines and case files.
#include <fmt/format.h>

#include "shardcheck/case/case.h"
#include "shardcheck/fuzz/target.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck::fuzz::targets {
namespace {

void require_same(const Case& printed, const Case& parsed, const std::string& text,
                  const std::string& again) {
  if (!(printed == parsed)) throw Finding(fmt::format("another case comes back from '{}'", text));
  if (again != text) throw Finding(fmt::format("'{}' is printed as '{}' when it comes back", text, again));
}

void check_line(std::string_view line) {
  Case c;
  try {
    c = parse_case(line);
  } catch (const InvalidCase&) {
    return;
  }
  const std::string text = print_case(c);
  const Case again = parse_case(text);
  require_same(c, again, text, print_case(again));
}

void check_file(std::string_view input) {
  CaseFile file;
  try {
    file = parse_case_file(input, "input");
  } catch (const InvalidCase&) {
    return;
  }
  const std::string text = print_case_file(file);
  const CaseFile again = parse_case_file(text, "printed");
  if (again.header != file.header) throw Finding(fmt::format("another header comes back from '{}'", text));
  require_same(file.value, again.value, text, print_case_file(again));
}

void check(std::string_view input) {
  input.find('\n') == std::string_view::npos ? check_line(input) : check_file(input);
}

std::string draw(Stream& stream) {
  const DrawOptions options{.any_dtype = true,
                            .three_layouts = stream.chance(1, 2),
                            .meshes = stream.chance(1, 2),
                            .any_arithmetic = true,
                            .any_contract = stream.chance(1, 2)};
  Case c = stream.chance(1, 4) ? draw_axis_case(stream, {.cp = true, .ragged = stream.chance(1, 2)})
                               : draw_case(stream, options);
  c.law = "printed_case_parses_back";
  if (stream.chance(1, 4)) c.fault = "some_fault:o_proj";
  if (stream.chance(1, 4)) c.input = "text with \"quotes\" and \u00fc";
  return print_case(c);
}

}  // namespace

const Target& case_line() {
  static const Target target{.name = "case_line",
                             .claim =
                                 "Text that is a case is printed as a line that is the same case, in one "
                                 "spelling; any other text is refused.",
                             .format = InputFormat::case_line,
                             .max_bytes = 8192,
                             .check = check,
                             .draw = draw};
  return target;
}

}  // namespace shardcheck::fuzz::targets
