#include "terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {
namespace {

bool is_dumb_terminal() {
  const char* term = std::getenv("TERM");
  return term != nullptr && std::string_view(term) == "dumb";
}

bool environment_forbids_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color != nullptr && *no_color != '\0') || is_dumb_terminal();
}

bool automatic_color() { return isatty(STDOUT_FILENO) == 1 && !environment_forbids_color(); }

bool& color_enabled() {
  static bool enabled = automatic_color();
  return enabled;
}

std::string_view escape_of(Tone tone) {
  switch (tone) {
    case Tone::strong:
      return "\033[1m";
    case Tone::faint:
      return "\033[2m";
    case Tone::good:
      return "\033[32m";
    case Tone::bad:
      return "\033[1;31m";
    case Tone::doubtful:
      return "\033[33m";
    case Tone::plain:
      break;
  }
  return "";
}

std::size_t stderr_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 10) return size.ws_col;
  return 80;
}

/// "[######..............]  30 %  "
std::string bar(double share) {
  constexpr double kCells = 20.0;
  const double done = std::clamp(share, 0.0, 1.0);
  const auto filled = static_cast<std::size_t>(done * kCells);
  return fmt::format("[{:.<20}] {:3.0f} %  ", std::string(filled, '#'), std::floor(done * 100.0));
}

// The progress line is one per process: a result printed by any thread must clear it first.
struct ProgressLine {
  using Clock = std::chrono::steady_clock;
  std::mutex mutex;
  const bool on_terminal = isatty(STDERR_FILENO) == 1 && !is_dumb_terminal();
  bool visible = false;
  Clock::time_point last_step;

  void clear() {
    if (visible) std::fputs("\r\033[K", stderr);
    visible = false;
  }

  /// A step too soon after the last is left out: another one follows.
  void draw(std::string_view text, bool is_step) {
    const auto now = Clock::now();
    if (is_step && visible && now - last_step < std::chrono::milliseconds(100)) return;
    if (is_step) last_step = now;
    visible = true;
    const std::string_view shown = text.substr(0, stderr_width() - 1);
    std::fprintf(stderr, "\r\033[K%.*s", static_cast<int>(shown.size()), shown.data());
  }
};

ProgressLine& progress_line() {
  static ProgressLine line;
  return line;
}

// Columns of a UTF-8 text: continuation bytes take none.
std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const Cell& cell, Align align, std::size_t width) {
  const std::size_t used = display_width(cell.text);
  const std::string gap(width > used ? width - used : 0, ' ');
  const std::string body = cell.text.empty() ? std::string() : paint(cell.tone, cell.text);
  return align == Align::right ? gap + body : body + gap;
}

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

void set_color(ColorMode mode) {
  color_enabled() = mode == ColorMode::always || (mode == ColorMode::automatic && automatic_color());
}

std::string paint(Tone tone, std::string_view text) {
  const std::string_view escape = escape_of(tone);
  if (!color_enabled() || escape.empty()) return std::string(text);
  return fmt::format("{}{}\033[0m", escape, text);
}

std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = c == '\n' || c == '\t' ? ' ' : '?';
  return text;
}

void print(std::string_view text) {
  ProgressLine& line = progress_line();
  const std::lock_guard lock(line.mutex);
  line.clear();
  std::fwrite(text.data(), 1, text.size(), stdout);
  // A person watching should see each result when it is there.
  std::fflush(stdout);
}

void print_line(std::string_view text) { print(fmt::format("{}\n", text)); }

void print_section(std::string_view title, std::string_view note) {
  print(note.empty() ? fmt::format("\n{}\n", paint(Tone::strong, title))
                     : fmt::format("\n{}   {}\n", paint(Tone::strong, title), paint(Tone::faint, note)));
}

void flush_results() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw IoError("cannot write to standard output");
}

void Table::row(std::vector<Cell> cells) { rows_.push_back({std::move(cells), false}); }
void Table::note(Cell cell) { rows_.push_back({{std::move(cell)}, true}); }

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> result;
  for (const Column& column : columns_) result.push_back(display_width(column.header));
  for (const Row& row : rows_) {
    if (row.spans) continue;
    for (std::size_t i = 0; i < row.cells.size() && i < result.size(); ++i)
      result[i] = std::max(result[i], display_width(row.cells[i].text));
  }
  return result;
}

std::string Table::text() const {
  const std::vector<std::size_t> width = widths();
  std::string out;
  const auto append = [&](const std::vector<Cell>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size() && i < width.size(); ++i)
      line += "  " + padded(cells[i], columns_[i].align, width[i]);
    out += without_trailing_spaces(std::move(line)) + '\n';
  };
  std::vector<Cell> header;
  for (const Column& column : columns_) header.emplace_back(column.header, Tone::faint);
  append(header);
  for (const Row& row : rows_) {
    if (row.spans)
      out += "  " + paint(row.cells[0].tone, row.cells[0].text) + '\n';
    else
      append(row.cells);
  }
  return out;
}

Progress::~Progress() {
  const std::lock_guard lock(progress_line().mutex);
  progress_line().clear();
}

void Progress::step(std::string text, std::size_t done, std::size_t total) {
  show({ProgressEvent::Kind::step, std::move(text), static_cast<double>(done) / static_cast<double>(total)});
}

void Progress::show(const ProgressEvent& event) {
  using Kind = ProgressEvent::Kind;
  if (quiet_ && event.kind != Kind::notice) return;
  ProgressLine& line = progress_line();
  const std::lock_guard lock(line.mutex);
  const std::string text = printable(event.text);
  if (event.kind == Kind::notice || (event.kind == Kind::stage && !line.on_terminal)) {
    line.clear();
    std::fprintf(stderr, "%s\n", text.c_str());
  } else if (line.on_terminal) {
    line.draw(event.share ? bar(*event.share) + text : text, event.kind == Kind::step);
  }
}

ProgressSink Progress::sink(std::string prefix) {
  return [this, prefix = std::move(prefix)](ProgressEvent event) {
    event.text.insert(0, prefix);
    show(event);
  };
}

std::string format_deviation(double value) {
  if (value == 0.0) return "0";
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : "inf";
  return std::abs(value) >= 1e-2 && std::abs(value) < 1e4 ? fmt::format("{:.3f}", value)
                                                          : fmt::format("{:.3e}", value);
}

std::string format_seconds(double seconds) {
  if (seconds < 9.995) return fmt::format("{:.2f} s", seconds);
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string format_share(double share) {
  const double percent = std::floor(share * 1000.0) / 10.0;
  return percent == std::floor(percent) ? fmt::format("{:.0f} %", percent) : fmt::format("{:.1f} %", percent);
}

std::string format_multiple(double multiple) {
  if (!std::isfinite(multiple)) return "inf";
  if (multiple >= 1e6) return fmt::format("{:.2e}x", multiple);
  return multiple >= 10.0 ? fmt::format("{:.0f}x", std::floor(multiple)) : fmt::format("{:.3g}x", multiple);
}

std::string format_hash(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ' ');
  return digits;
}

std::string format_noun(std::int64_t count, std::string_view singular, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", singular);
  return plural.empty() ? fmt::format("{} {}s", format_count(count), singular)
                        : fmt::format("{} {}", format_count(count), plural);
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

}  // namespace shardcheck
