#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>
#include <sstream>
#include <thread>

#include "outputs.h"
#include "shardcheck/case/case.h"
#include "shardcheck/text/shell_quote.h"
#include "shardcheck/tolerance/floor.h"

namespace shardcheck {
namespace {

namespace po = boost::program_options;

// Long options only, no guessing of prefixes: a new option must not change what an old command means.
constexpr int kStyle = po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent |
                       po::command_line_style::long_allow_next;

constexpr const char* kDataDir = "data-dir";

std::string& replay_options() {
  static std::string options;
  return options;
}

/// Every threshold of this process, and of the replays it prints, comes from `data_dir`.
void judge_by_floor_of(const std::filesystem::path& data_dir, const CommonOptions& common) {
  require_no_input_among("--report", common.json_reports, {data_dir / "in_process.json"});
  use_floor_of(data_dir);
  replay_options() = fmt::format("--data-dir={} ", shell_quote(data_dir.string()));
}

std::string& program_name_storage() {
  static std::string name = "shardcheck";
  return name;
}

template <typename T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

ColorMode parse_color(const std::string& text) {
  if (text == "auto") return ColorMode::automatic;
  if (text == "always") return ColorMode::always;
  if (text == "never") return ColorMode::never;
  refuse_unknown("--color", text, {"auto", "always", "never"});
}

std::filesystem::path parse_report(const std::string& text) {
  constexpr std::string_view kJson = "json:";
  if (text.rfind(kJson, 0) != 0 || text.size() == kJson.size())
    throw InvalidInput(fmt::format("--report='{}' is not supported; allowed: json:FILE", text));
  return text.substr(kJson.size());
}

[[noreturn]] void refuse_empty(const po::option_description& option) {
  throw InvalidInput(fmt::format("--{}= is empty; allowed: --{}={} ({})", option.long_name(),
                                 option.long_name(), option.format_parameter(), option.description()));
}

/// An empty value never means anything, but for an option that may stand without one.
void refuse_empty_values(const std::vector<std::string>& words, const po::options_description& options) {
  for (const auto& option : options.options()) {
    if (option->semantic()->min_tokens() == 0) continue;
    const std::string name = "--" + option->long_name();
    for (std::size_t i = 0; i < words.size(); ++i)
      if (words[i] == name + "=" || (words[i] == name && i + 1 < words.size() && words[i + 1].empty()))
        refuse_empty(*option);
  }
}

}  // namespace

void set_program_name(std::string_view argv0) {
  if (!argv0.empty()) program_name_storage() = shell_quote(argv0);
}
const std::string& program_name() { return program_name_storage(); }

std::string replay_command(std::string_view case_line_or_file) {
  return fmt::format("{} replay {}{}", program_name(), replay_options(), shell_quote(case_line_or_file));
}

void refuse_unknown(std::string_view what, std::string_view word, const std::vector<std::string>& allowed) {
  const std::string nearest = nearest_name(word, allowed);
  throw InvalidInput(fmt::format("{} '{}' is unknown{}; allowed: {}", what, word,
                                 nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest),
                                 join(allowed, ", ")));
}

std::int64_t parse_integer(std::string_view what, std::string_view text, std::int64_t low,
                           std::int64_t high) {
  const auto value = parse_whole<std::int64_t>(text);
  if (!value || *value < low || *value > high)
    throw InvalidInput(fmt::format("{}='{}' is not a whole number in {}..{}", what, text, low, high));
  return *value;
}

std::optional<std::string> Arguments::text(const char* option) const {
  if (!has(option)) return std::nullopt;
  return values_[option].as<std::string>();
}

std::optional<std::int64_t> Arguments::integer(const char* option, std::int64_t low,
                                               std::int64_t high) const {
  const auto value = text(option);
  if (!value) return std::nullopt;
  return parse_integer(fmt::format("--{}", option), *value, low, high);
}

std::optional<double> Arguments::number(const char* option, double low, double high) const {
  const auto value = text(option);
  if (!value) return std::nullopt;
  const auto parsed = parse_whole<double>(*value);
  if (!parsed || !std::isfinite(*parsed) || *parsed < low || *parsed > high)
    throw InvalidInput(fmt::format("--{}='{}' is not a number in {}..{}", option, *value, low, high));
  return parsed;
}

std::optional<double> Arguments::seconds(const char* option) const {
  const auto value = text(option);
  if (!value) return std::nullopt;
  double unit = 1.0;
  std::string_view digits = *value;
  if (!digits.empty() && std::string_view("smh").find(digits.back()) != std::string_view::npos) {
    unit = digits.back() == 'h' ? 3600.0 : digits.back() == 'm' ? 60.0 : 1.0;
    digits.remove_suffix(1);
  }
  const auto parsed = parse_whole<double>(digits);
  if (!parsed || !(*parsed > 0.0) || *parsed * unit > 604800.0)
    throw InvalidInput(
        fmt::format("--{}='{}' is not a duration; allowed: a positive number with s, m or h, at most 168h",
                    option, *value));
  return *parsed * unit;
}

std::uint64_t Arguments::seed() const {
  const auto value = text("seed");
  if (!value) return 0;
  if (*value == "random") {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32) | device();
  }
  const auto parsed = parse_whole<std::uint64_t>(*value);
  if (!parsed)
    throw InvalidInput(
        fmt::format("--seed='{}' is not a seed; allowed: 0..18446744073709551615 or random", *value));
  return *parsed;
}

int Arguments::jobs() const {
  if (const auto given = integer("jobs", 1, 1024)) return static_cast<int>(*given);
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

std::vector<int> Arguments::degrees(const char* option) const {
  std::vector<int> result;
  const auto value = text(option);
  if (!value) return result;
  std::string_view rest = *value;
  while (true) {
    const std::size_t comma = rest.find(',');
    result.push_back(
        static_cast<int>(parse_integer(fmt::format("--{}", option), rest.substr(0, comma), 1, 1024)));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::optional<std::string> Arguments::choice(const char* option,
                                             const std::vector<std::string>& allowed) const {
  auto value = text(option);
  if (value && std::find(allowed.begin(), allowed.end(), *value) == allowed.end())
    refuse_unknown(fmt::format("--{}", option), *value, allowed);
  return value;
}

CommandLine::CommandLine(std::string name, std::string usage, std::string about, std::string example)
    : name_(std::move(name)),
      usage_(std::move(usage)),
      about_(std::move(about)),
      example_(std::move(example)),
      options_("Options", 100, 50) {
  flag("help", "show this help");
  value("color", "WHEN", "colour in results: auto, always or never");
  flag("quiet", "no progress, and only the verdict and failures");
}

CommandLine& CommandLine::value(const char* name, const char* placeholder, const char* help) {
  options_.add_options()(name, po::value<std::string>()->value_name(placeholder), help);
  return *this;
}

CommandLine& CommandLine::optional_value(const char* name, const char* help) {
  options_.add_options()(name, po::value<std::string>()->implicit_value("")->value_name("TEXT"), help);
  return *this;
}

CommandLine& CommandLine::flag(const char* name, const char* help) {
  options_.add_options()(name, po::bool_switch(), help);
  return *this;
}

CommandLine& CommandLine::seed() { return value("seed", "N|random", "seed of everything drawn (default 0)"); }

CommandLine& CommandLine::jobs() { return value("jobs", "N", "threads (default: one per hardware thread)"); }

CommandLine& CommandLine::data_dir() {
  options_.add_options()(kDataDir, po::value<std::string>()->value_name("DIR"),
                         "recorded floors from DIR instead of the built-in ones");
  has_data_dir_ = true;
  return *this;
}

CommandLine& CommandLine::reports(std::string_view schema) {
  reports_ = true;
  const std::string help = fmt::format("also write a report (repeatable); format: {}", schema);
  options_.add_options()("report", po::value<std::vector<std::string>>()->value_name("json:FILE"),
                         help.c_str());
  return *this;
}

CommandLine& CommandLine::positional(int count, std::string what) {
  positional_count_ = count;
  positional_what_ = std::move(what);
  return *this;
}

std::vector<std::string> CommandLine::option_names() const {
  std::vector<std::string> names;
  for (const auto& option : options_.options()) names.push_back("--" + option->long_name());
  return names;
}

void CommandLine::print_help() const {
  std::ostringstream text;
  text << options_;
  std::string options = text.str();
  // Boost spells an optional value like one that is needed.
  constexpr std::string_view kSpelled = " TEXT  ", kMeant = "[=TEXT]";
  if (const std::size_t at = options.find(kSpelled); at != std::string::npos)
    options.replace(at, kSpelled.size(), kMeant);
  print(fmt::format("usage: shardcheck {} {}\n\n{}\n\n{}\nExample:\n  shardcheck {}\n", name_, usage_, about_,
                    options, example_));
}

std::optional<Arguments> CommandLine::parse(const std::vector<std::string>& words) const {
  po::options_description all;
  all.add(options_);
  all.add_options()("words", po::value<std::vector<std::string>>());
  po::positional_options_description positions;
  positions.add("words", -1);
  po::variables_map values;
  refuse_empty_values(words, options_);
  try {
    po::store(po::command_line_parser(words).options(all).positional(positions).style(kStyle).run(), values);
  } catch (const po::unknown_option& error) {
    const std::string word = error.get_option_name();
    const std::string nearest = nearest_name(word, option_names());
    throw InvalidInput(fmt::format("{} has no option {}{}; see shardcheck {} --help", name_, word,
                                   nearest.empty() ? "" : fmt::format(", did you mean {}?", nearest), name_));
  } catch (const po::error& error) {
    throw InvalidInput(fmt::format("{}: {}", name_, error.what()));
  }
  if (values["help"].as<bool>()) {
    print_help();
    return std::nullopt;
  }
  if (values.count("color") > 0) set_color(parse_color(values["color"].as<std::string>()));
  std::vector<std::string> positional;
  if (values.count("words") > 0) positional = values["words"].as<std::vector<std::string>>();
  for (const std::string& word : positional)
    if (word.size() > 1 && word[0] == '-')
      throw InvalidInput(fmt::format("{} has no option {}; see shardcheck {} --help", name_, word, name_));
  if (static_cast<int>(positional.size()) > positional_count_)
    throw InvalidInput(fmt::format("{} takes {}; '{}' is one too many", name_,
                                   positional_count_ == 0
                                       ? "options only"
                                       : "at most " + format_noun(positional_count_, positional_what_),
                                   positional[static_cast<std::size_t>(positional_count_)]));
  CommonOptions common;
  common.quiet = values["quiet"].as<bool>();
  if (reports_ && values.count("report") > 0)
    for (const auto& text : values["report"].as<std::vector<std::string>>())
      common.json_reports.push_back(parse_report(text));
  for (const auto& file : common.json_reports) require_writable(file);
  if (has_data_dir_ && values.count(kDataDir) > 0)
    judge_by_floor_of(values[kDataDir].as<std::string>(), common);
  return Arguments(std::move(values), std::move(positional), std::move(common));
}

}  // namespace shardcheck
