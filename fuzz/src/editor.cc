#include "shardcheck/fuzz/editor.h"

#include <algorithm>

#include "case_editor.h"
#include "case_input.h"
#include "container_editor.h"
#include "json_editor.h"

namespace shardcheck::fuzz {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

const std::string& pick_line(const Lines& lines, Stream& stream) {
  return lines[static_cast<std::size_t>(stream.integer(0, std::ssize(lines) - 1))];
}

/// The case of the first line edited, or a line after it away, twice, or taken from a draw.
void edit_lines(const Target& target, const Case& c, Lines& lines, Stream& stream) {
  if (lines.size() < 2 || stream.chance(1, 2)) {
    lines[0] = print_case(edit_case(target, c, stream));
    return;
  }
  const auto at = lines.begin() + stream.integer(1, std::ssize(lines) - 1);
  switch (stream.integer(0, 3)) {
    case 0:
      lines.erase(at);
      break;
    case 1:
      lines.push_back(*at);
      break;
    case 2:
      std::swap(*at, lines.back());
      break;
    default: {
      const Lines drawn = lines_of(target.draw(stream));
      if (drawn.size() > 1) lines.insert(at, drawn.back());
      break;
    }
  }
}

std::optional<std::string> drawn_for_garbage(const Target& target, Stream& stream) {
  if (!stream.chance(1, 8)) return std::nullopt;
  return target.draw(stream);
}

std::optional<std::string> edit_case_text(const Target& target, std::string_view input, Stream& stream) {
  const auto c = read_case(input);
  if (!c) return drawn_for_garbage(target, stream);
  return print_case(edit_case(target, *c, stream));
}

std::optional<std::string> edit_text(const Target& target, std::string_view input, Stream& stream) {
  Lines lines = lines_of(input);
  const auto c = lines.empty() ? std::nullopt : read_case(lines[0]);
  if (!c) return drawn_for_garbage(target, stream);
  edit_lines(target, *c, lines, stream);
  return joined(lines);
}

std::optional<std::string> edit_document(const Target& target, std::string_view input, Stream& stream) {
  auto document = parse_json(input);
  if (!document) return drawn_for_garbage(target, stream);
  do edit_json(*document, stream);
  while (stream.chance(1, 4));
  return print_json(*document);
}

std::optional<std::string> edit_safetensors(const Target& target, std::string_view input, Stream& stream) {
  auto container = parse_container(input);
  if (!container) return drawn_for_garbage(target, stream);
  edit_container(*container, stream);
  return print_container(*container);
}

std::optional<std::string> cross_case_texts(std::string_view first, std::string_view second, Stream& stream) {
  const auto one = read_case(first), other = read_case(second);
  if (!one || !other) return std::nullopt;
  return print_case(cross_cases(*one, *other, stream));
}

std::optional<std::string> cross_texts(std::string_view first, std::string_view second, Stream& stream) {
  Lines one = lines_of(first);
  const Lines other = lines_of(second);
  if (one.empty() || other.empty()) return std::nullopt;
  const auto c = read_case(one[0]), other_case = read_case(other[0]);
  if (!c || !other_case) return std::nullopt;
  if (stream.chance(1, 2)) one[0] = print_case(cross_cases(*c, *other_case, stream));
  if (other.size() > 1) one.push_back(pick_line({other.begin() + 1, other.end()}, stream));
  return joined(one);
}

std::optional<std::string> cross_documents(std::string_view first, std::string_view second, Stream& stream) {
  auto document = parse_json(first);
  const auto other = parse_json(second);
  if (!document || !other) return std::nullopt;
  cross_json(*document, *other, stream);
  return print_json(*document);
}

std::optional<std::string> cross_files(std::string_view first, std::string_view second, Stream& stream) {
  auto container = parse_container(first);
  const auto other = parse_container(second);
  if (!container || !other) return std::nullopt;
  cross_containers(*container, *other, stream);
  return print_container(*container);
}

/// What parsers read also needs bytes that are nearly right.
bool leaves_bytes(const Target& target, Stream& stream) {
  const bool is_parser = target.format == InputFormat::json || target.format == InputFormat::safetensors ||
                         target.name == "case_line";
  return stream.chance(is_parser ? 8 : 1, 32);
}

}  // namespace

std::optional<std::string> edit(const Target& target, std::string_view input, Stream& stream) {
  if (input.size() > target.max_bytes || leaves_bytes(target, stream)) return std::nullopt;
  switch (target.format) {
    case InputFormat::case_line:
      return edit_case_text(target, input, stream);
    case InputFormat::json:
      return edit_document(target, input, stream);
    case InputFormat::safetensors:
      return edit_safetensors(target, input, stream);
    case InputFormat::text:
      return edit_text(target, input, stream);
  }
  return std::nullopt;
}

std::optional<std::string> cross_over(const Target& target, std::string_view first, std::string_view second,
                                      Stream& stream) {
  if (first.size() > target.max_bytes || second.size() > target.max_bytes) return std::nullopt;
  switch (target.format) {
    case InputFormat::case_line:
      return cross_case_texts(first, second, stream);
    case InputFormat::json:
      return cross_documents(first, second, stream);
    case InputFormat::safetensors:
      return cross_files(first, second, stream);
    case InputFormat::text:
      return cross_texts(first, second, stream);
  }
  return std::nullopt;
}

}  // namespace shardcheck::fuzz
