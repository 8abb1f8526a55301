#include "corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>
#include <span>

#include "replaying.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/tensor/stream.h"
#include "shardcheck/text/hex.h"
#include "terminal.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kHeaderKeys = {"law", "verdict", "found_by", "commit", "why"};
constexpr std::size_t kLongestSeedBytes = std::size_t{1} << 20;
constexpr std::size_t kLongestName = 100;

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_file_name(std::string_view stem) {
  return !stem.empty() && std::all_of(stem.begin(), stem.end(), is_name_character);
}

/// As a build says it: "0123456789ab", "0123456789ab-dirty" with changes, "unknown" outside of a repository.
bool is_commit(std::string_view text) {
  if (text == "unknown") return true;
  if (text.ends_with("-dirty")) text.remove_suffix(std::string_view("-dirty").size());
  const bool hex = std::all_of(text.begin(), text.end(),
                               [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  return hex && text.size() >= 7 && text.size() <= 40;
}

bool may_be_recorded(std::string_view text) {
  const auto verdict = verdict_from(text);
  return verdict && *verdict != Verdict::error && *verdict != Verdict::timeout;
}

/// What is wrong with a header alone.
std::vector<std::string> header_problems(const CaseFile& file, std::span<const std::string_view> needed) {
  std::vector<std::string> keys;
  std::vector<std::string> problems;
  for (const auto& [key, value] : file.header) {
    keys.push_back(key);
    if (value.empty()) problems.push_back(fmt::format("the header says nothing of its {}", key));
    if (key == "law" && value != file.value.law)
      problems.push_back(fmt::format("law '{}' in the header, '{}' in the case line", value, file.value.law));
    if (key == "verdict" && !may_be_recorded(value))
      problems.push_back(fmt::format(
          "verdict '{}': allowed is what a law decides or declines, not an error or a timeout", value));
    if (key == "commit" && !is_commit(value))
      problems.push_back(
          fmt::format("commit '{}': allowed are 7 to 40 hexadecimal digits, or unknown", value));
  }
  if (!std::ranges::equal(keys, needed))
    problems.push_back(fmt::format("the header has the keys '{}': needed are '{}'", join(keys, " "),
                                   fmt::join(needed, " ")));
  return problems;
}

/// Bytes of a hexadecimal file with # comments; nothing when it is none.
std::optional<std::string> decoded_hex(std::string_view text, const fs::path& file) {
  try {
    std::string bytes = bytes_of_hex(text, file.string());
    return bytes.empty() ? std::nullopt : std::optional(std::move(bytes));
  } catch (const InvalidInput&) {
    return std::nullopt;
  }
}

/// What is wrong with one seed; its content goes into `seen`.
std::string seed_problem(const fs::path& file, std::map<std::string, fs::path>& seen) {
  std::string content = read_text(file, kLongestSeedBytes);
  if (content.empty()) return "is empty";
  if (content.find('\0') != std::string::npos) return "is no text; bytes are written as hexadecimal";
  if (file.extension() == ".hex") {
    const auto bytes = decoded_hex(content, file);
    if (!bytes) return "is no hexadecimal with # comments, two digits a byte";
    content = ".hex" + *bytes;
  }
  const auto [at, is_new] = seen.emplace(std::move(content), file);
  return is_new ? "" : fmt::format("repeats {}", at->second.string());
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    entries.push_back(entry->path());
  if (error) throw IoError(fmt::format("{}: {}", folder.string(), error.message()));
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool is_report(const CorpusCase& one) { return one.file.parent_path().filename() == "reports"; }

}  // namespace

CaseFile CaseRecord::file_of(Case value) const {
  return {{{"law", law},
           {"verdict", std::string(to_string(verdict))},
           {"found_by", found_by},
           {"commit", commit},
           {"why", why}},
          std::move(value)};
}

std::string CorpusCase::origin() const {
  return line == 0 ? file.string() : fmt::format("{}:{}", file.string(), line);
}

std::string CaseIndex::add(const CorpusCase& one) {
  const auto [at, is_new] = by_line_.emplace(print_case(one.value.value), one);
  return is_new || (is_report(one) && is_report(at->second)) ? "" : at->second.origin();
}

std::string CaseIndex::find(const Case& value) const {
  const auto at = by_line_.find(print_case(value));
  return at == by_line_.end() ? "" : at->second.origin();
}

std::vector<fs::path> corpus_files(const fs::path& folder) {
  std::vector<fs::path> files = case_files(folder);
  std::erase_if(files, [&](const fs::path& file) {
    const fs::path below = file.lexically_relative(folder);
    return below.begin() != below.end() && *below.begin() == "seeds";
  });
  return files;
}

std::vector<CorpusCase> cases_of(const fs::path& file) {
  const std::string text = read_text(file, kLongestCaseFileBytes);
  if (!is_batch(file)) return {{file, 0, parse_case_file(text, file.string())}};
  std::vector<CorpusCase> cases;
  CaseBatch batch = parse_case_batch(text, file.string());
  for (CaseBatch::Line& line : batch.lines)
    cases.push_back({file, line.number, {batch.header, std::move(line.value)}});
  return cases;
}

CaseIndex index_of(const fs::path& corpus) {
  CaseIndex index;
  for (const fs::path& file : corpus_files(corpus)) {
    try {
      for (const CorpusCase& one : cases_of(file)) index.add(one);
    } catch (const InvalidInput&) {
      continue;  // `corpus verify` says so
    }
  }
  return index;
}

std::vector<std::string> form_problems(const fs::path& file) {
  std::vector<std::string> problems;
  const std::string stem = file.stem().string();
  if (!is_file_name(stem)) problems.emplace_back("the name of the file is not of letters, digits and '_'");
  const std::string text = read_text(file, kLongestCaseFileBytes);
  std::set<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.insert(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const std::vector<CorpusCase> cases = cases_of(file);
  // A batch is of several laws.
  const std::span<const std::string_view> needed = std::span(kHeaderKeys).subspan(is_batch(file) ? 1 : 0);
  for (std::string& problem : header_problems(cases.front().value, needed))
    problems.push_back(std::move(problem));
  for (const CorpusCase& one : cases) {
    const std::string where = one.line == 0 ? "" : fmt::format("line {}: ", one.line);
    const std::string canonical = print_case(one.value.value);
    if (!lines.contains(canonical))
      problems.push_back(fmt::format("{}the case line is not canonical, which is: {}", where, canonical));
  }
  return problems;
}

std::vector<std::string> seed_problems(const fs::path& corpus) {
  std::vector<std::string> problems;
  std::error_code error;
  if (!fs::is_directory(corpus / "seeds", error)) return problems;
  for (const fs::path& target : entries_of(corpus / "seeds")) {
    if (!fs::is_directory(target, error)) {
      problems.push_back(fmt::format("{}: seeds lie in a folder named after their target", target.string()));
      continue;
    }
    std::map<std::string, fs::path> seen;
    for (const fs::path& file : entries_of(target)) {
      const std::string problem =
          fs::is_regular_file(file, error) ? seed_problem(file, seen) : std::string("is no file");
      if (!problem.empty()) problems.push_back(fmt::format("{}: {}", file.string(), problem));
    }
  }
  return problems;
}

Verdict required_verdict(const Law& law, const Case& c) {
  if (c.fault.empty()) return Verdict::passed;
  const Fault& fault = *parse_fault(c.fault).fault;
  const std::vector<const Law*> against = laws_against(fault);
  const bool detects = std::ranges::find(against, &law) != against.end();
  return detects && !fault.is_relabel_control() ? Verdict::failed : Verdict::passed;
}

std::string name_of(const Case& c) {
  Case named = c;
  named.seed = 0;
  named.input.clear();
  std::string name;
  for (const char letter : print_case(named)) {
    if (is_name_character(letter))
      name.push_back(letter);
    else if (!name.ends_with('_'))
      name.push_back('_');
  }
  if (name.size() <= kLongestName) return name;
  name.resize(name.find_last_not_of('_', kLongestName - 10) + 1);
  return fmt::format("{}_{:08x}", name, stream_key(0, print_case(c)) & 0xffffffffU);
}

fs::path write_case_file(const fs::path& folder, const std::string& name, const CaseFile& file) {
  if (!is_file_name(name))
    throw InvalidInput(fmt::format("--name={}: allowed are letters, digits and '_'", name));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError(fmt::format("{}: cannot create the folder: {}", folder.string(), error.message()));
  const fs::path path = folder / (name + ".case");
  if (fs::exists(path, error))
    throw InvalidInput(
        fmt::format("{}: there is another case of that name; give --name=NAME", path.string()));
  write_text_atomically(path, print_case_file(file));
  return path;
}

}  // namespace shardcheck
