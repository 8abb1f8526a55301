// What the program writes: results to stdout in restrained colour and aligned tables, progress to stderr.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/text/progress.h"

namespace shardcheck {

enum class ColorMode : std::uint8_t { automatic, always, never };
/// `automatic`: colour when stdout is a terminal, TERM is not "dumb" and NO_COLOR is unset or empty.
void set_color(ColorMode mode);

/// What a piece of text means; how it looks follows from it.
enum class Tone : std::uint8_t { plain, strong, faint, good, bad, doubtful };
/// `text` in the tone's escape codes, or as it is when colour is off.
std::string paint(Tone tone, std::string_view text);

/// `text` on one line that cannot move the cursor or change the terminal: control characters become '?', line
/// ends and tabs blanks.
std::string printable(std::string text);

/// Writes to stdout, clearing a progress line first.
void print(std::string_view text);
void print_line(std::string_view text = {});
/// A section heading: a blank line, the title in strong, then the note in faint.
void print_section(std::string_view title, std::string_view note = {});
/// Flushes stdout. Throws IoError when anything written to it was lost.
void flush_results();

struct Cell {
  std::string text;
  Tone tone = Tone::plain;
  Cell(std::string t, Tone n = Tone::plain) : text(std::move(t)), tone(n) {}  // NOLINT: cells read as text
  Cell(const char* t) : text(t) {}                                            // NOLINT
};

enum class Align : std::uint8_t { left, right };
struct Column {
  std::string header;
  Align align = Align::left;
};

/// Rows under a faint header, two spaces in, columns as wide as their widest cell; no trailing spaces.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Fewer cells than columns leave the rest empty.
  void row(std::vector<Cell> cells);
  /// A line across the columns, not aligned to them.
  void note(Cell cell);
  std::string text() const;

 private:
  std::vector<std::size_t> widths() const;
  struct Row {
    std::vector<Cell> cells;
    bool spans = false;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

/// Progress on stderr. On a terminal one line with a bar of the share done, rewritten in place, steps at most
/// ten times a second; elsewhere a plain line per stage. Notices stay in both. `quiet` leaves notices alone.
/// Safe to call from several threads.
class Progress {
 public:
  explicit Progress(bool quiet) : quiet_(quiet) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void stage(std::string text) { show({ProgressEvent::Kind::stage, std::move(text)}); }
  /// Step `done` of `total`, the first being 1.
  void step(std::string text, std::size_t done, std::size_t total);
  void show(const ProgressEvent& event);
  /// Hands on what a computation says, after `prefix`. Not to be used longer than this object.
  ProgressSink sink(std::string prefix = {});

 private:
  bool quiet_;
};

// Numbers the way every table spells them.

/// "0", "1.669e-06", "2.098", "inf".
std::string format_deviation(double value);
/// "0.41 s", "41.2 s", "2 min 03 s".
std::string format_seconds(double seconds);
/// "100 %", "99.7 %": rounded down, so that only a full share prints as 100 %.
std::string format_share(double share);
/// "2535x", "0.412x".
std::string format_multiple(double multiple);
/// "16 digits of hex".
std::string format_hash(std::uint64_t hash);
/// 19200000 -> "19 200 000".
std::string format_count(std::int64_t count);
/// "1 case", "2 cases": `plural` defaults to singular + "s".
std::string format_noun(std::int64_t count, std::string_view singular, std::string_view plural = {});
std::string join(const std::vector<std::string>& words, std::string_view separator);

}  // namespace shardcheck
