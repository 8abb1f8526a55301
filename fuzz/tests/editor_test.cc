#include "shardcheck/fuzz/editor.h"

#include <gtest/gtest.h>

#include "case_editor.h"
#include "case_input.h"
#include "container_editor.h"

namespace shardcheck::fuzz {
namespace {

std::vector<const Target*> targets_of(InputFormat format) {
  std::vector<const Target*> found;
  for (const Target* target : all_targets())
    if (target->format == format) found.push_back(target);
  return found;
}

std::string draw_of(const Target& target, int i) {
  Stream stream = Stream(1, target.name).child(std::to_string(i));
  return target.draw(stream);
}

/// Inputs as they follow from each other, each an edit of the one before.
template <typename Take>
void for_each_edit(const Target& target, int edits, const Take& take) {
  std::string input = draw_of(target, 0);
  Stream stream(2, target.name);
  for (int i = 0; i < edits; ++i) {
    const auto edited = edit(target, input, stream);
    if (!edited) continue;
    take(input, *edited);
    if (!edited->empty() && edited->size() <= target.max_bytes) input = *edited;
  }
}

TEST(CaseEditor, EveryEditOfACaseIsAnotherCase) {
  for (const Target* target : targets_of(InputFormat::case_line)) {
    int same = 0;
    for_each_edit(*target, 300, [&](const std::string& before, const std::string& after) {
      ASSERT_NO_THROW(parse_case(after)) << target->name << ": " << after;
      if (before == after) ++same;
    });
    EXPECT_LE(same, 3) << target->name;
  }
}

TEST(CaseEditor, ReachesEveryKeyThatDrawsHave) {
  const Target& target = target_named("case_line");
  std::string seen;
  for_each_edit(target, 1500, [&](const std::string&, const std::string& after) { seen += after + " "; });
  for (const char* key :
       {"d_model=", "tied=", "experts=", "q_lora=", "dtype=", "leaf=", "target=", "lengths=", "fault="})
    EXPECT_NE(seen.find(key), std::string::npos) << key;
}

TEST(CaseEditor, ACrossOverHasKeysOfBoth) {
  const Case first = parse_case("sharded_equals_reference ffn=24 tied=true");
  const Case second = parse_case("sharded_equals_reference vocab=40 dtype=bf16");
  bool both = false;
  for (std::uint64_t seed = 0; seed < 64 && !both; ++seed) {
    Stream stream(seed);
    const Case crossed = cross_cases(first, second, stream);
    both = crossed.geometry.tied && crossed.dtype == DType::bf16;
  }
  EXPECT_TRUE(both);
}

TEST(Editor, TheSameSeedGivesTheSameEdit) {
  for (const Target* target : all_targets()) {
    for (int i = 0; i < 5; ++i) {
      const std::string input = draw_of(*target, i), other = draw_of(*target, i + 1);
      Stream once(static_cast<std::uint64_t>(i)), again(static_cast<std::uint64_t>(i));
      EXPECT_EQ(edit(*target, input, once), edit(*target, input, again)) << target->name;
      EXPECT_EQ(cross_over(*target, input, other, once), cross_over(*target, input, other, again))
          << target->name;
    }
  }
}

/// Long enough to be no word, which would be a case line.
std::string garbage(Stream& stream) {
  std::string bytes(static_cast<std::size_t>(stream.integer(8, 300)), '\0');
  for (char& byte : bytes) byte = static_cast<char>(stream.integer(0, 255));
  return bytes;
}

TEST(Editor, GarbageIsLeftToByteEditsOrReplacedByADraw) {
  for (const Target* target : all_targets()) {
    int replaced = 0;
    for (std::uint64_t i = 0; i < 100; ++i) {
      Stream stream(i, target->name);
      const std::string bytes = garbage(stream);
      if (edit(*target, bytes, stream)) ++replaced;
      EXPECT_EQ(cross_over(*target, bytes, bytes, stream), std::nullopt) << target->name;
    }
    EXPECT_GT(replaced, 0) << target->name;
    EXPECT_LT(replaced, 40) << target->name;
  }
}

TEST(JsonEditor, EveryEditIsJsonAndMostAreOthers) {
  for (const Target* target : targets_of(InputFormat::json)) {
    int edits = 0, same = 0;
    for_each_edit(*target, 300, [&](const std::string& before, const std::string& after) {
      EXPECT_TRUE(parse_json(after)) << target->name << ": " << after;
      ++edits;
      if (before == after) ++same;
    });
    EXPECT_GT(edits, 100) << target->name;
    EXPECT_LT(5 * same, edits) << target->name;
  }
}

TEST(JsonEditor, DeepNestingIsNoTrouble) {
  std::string deep;
  for (int i = 0; i < 2000; ++i) deep += '[';
  for (int i = 0; i < 2000; ++i) deep += ']';
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Stream stream(seed);
    EXPECT_NO_THROW(edit(target_named("layout_table"), deep, stream));
  }
}

TEST(ContainerEditor, PrintsWhatItParsed) {
  const Target& target = target_named("safetensors");
  int parsed = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string bytes = draw_of(target, i);
    const auto container = parse_container(bytes);
    if (!container) continue;
    ++parsed;
    EXPECT_EQ(print_container(*container), bytes);
  }
  EXPECT_GT(parsed, 20);
}

TEST(TextEditor, KeepsTheCaseAndChangesSteps) {
  const Target& target = target_named("sync_sequence");
  int more = 0, fewer = 0;
  for_each_edit(target, 200, [&](const std::string& before, const std::string& after) {
    ASSERT_TRUE(read_case(after.substr(0, after.find('\n')))) << after;
    const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
    more += lines(after) > lines(before) ? 1 : 0;
    fewer += lines(after) < lines(before) ? 1 : 0;
  });
  EXPECT_GT(more, 5);
  EXPECT_GT(fewer, 5);
}

}  // namespace
}  // namespace shardcheck::fuzz
