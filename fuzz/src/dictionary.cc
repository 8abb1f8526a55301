// Words of inputs, each from where it is defined: nothing is listed here that the library knows.
#include <algorithm>
#include <set>

#include "shardcheck/case/case.h"
#include "shardcheck/fuzz/seeds.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/properties/law.h"

namespace shardcheck::fuzz {
namespace {

constexpr int kDraws = 64;
constexpr std::size_t kLongestWord = 60;  // libFuzzer takes up to 64 bytes

bool is_in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == '{' || c == '}';
}

/// Words with a letter in them: digits alone are nothing that byte edits could not make.
void add_words(std::string_view text, std::set<std::string>& words) {
  for (auto at = text.begin(); at != text.end();) {
    const auto begin = std::find_if(at, text.end(), is_in_word);
    at = std::find_if_not(begin, text.end(), is_in_word);
    const std::string word(begin, at);
    const bool has_letter =
        std::ranges::any_of(word, [](char c) { return c >= 'A' && c != '{' && c != '}'; });
    if (word.size() >= 2 && word.size() <= kLongestWord && has_letter) words.insert(word);
  }
}

void add_case_words(std::set<std::string>& words) {
  for (const CaseKey& key : case_keys()) {
    words.insert(key.key + "=");
    if (key.allowed.find(' ') == std::string::npos) add_words(key.allowed, words);
  }
  for (const Law* law : all_laws()) words.emplace(law->name);
  for (const FaultChoice& choice : every_choice()) words.insert(choice.text());
  for (const std::string& table : LayoutTable::built_in_names()) words.insert(table);
}

void add_dtypes(std::set<std::string>& words) {
  for (int i = 0; i <= static_cast<int>(DType::u64); ++i)
    words.emplace(safetensors_name(static_cast<DType>(i)));
}

}  // namespace

std::vector<std::string> dictionary_of(const Target& target) {
  std::set<std::string> words;
  for (int i = 0; i < kDraws; ++i) {
    Stream stream(static_cast<std::uint64_t>(i), "dictionary");
    add_words(target.draw(stream), words);
  }
  if (target.format == InputFormat::case_line || target.format == InputFormat::text) add_case_words(words);
  if (target.format == InputFormat::safetensors) add_dtypes(words);
  return {words.begin(), words.end()};
}

}  // namespace shardcheck::fuzz
