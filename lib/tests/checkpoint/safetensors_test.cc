#include "shardcheck/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>

#include "checkpoint_fixture.h"

namespace shardcheck {
namespace {

using namespace shardcheck::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kAllDTypes[] = {
    DType::boolean, DType::f4,      DType::f6_e2m3, DType::f6_e3m2,     DType::u8,          DType::i8,
    DType::f8_e5m2, DType::f8_e4m3, DType::f8_e8m0, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz, DType::i16,
    DType::u16,     DType::f16,     DType::bf16,    DType::i32,         DType::u32,         DType::f32,
    DType::c64,     DType::f64,     DType::i64,     DType::u64};

/// Tensor "a" with these fields, alone in a file.
std::string one(std::string_view fields, std::size_t buffer_bytes) {
  return image(fmt::format(R"({{"a":{{{}}}}})", fields), buffer_bytes);
}

struct Refused {
  const char* name;
  std::string bytes;
  std::vector<std::string> message;  // every one is a part of the message
};

void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.name; }

const auto kNameOfCase = [](const auto& tested) { return std::string(tested.param.name); };

class SafetensorsRefuses : public ::testing::TestWithParam<Refused> {};

TEST_P(SafetensorsRefuses, NamingFileFieldAndValue) {
  const std::string message = refusal<InvalidCheckpoint>([&] { parse(GetParam().bytes); });
  EXPECT_THAT(message, HasSubstr("x.safetensors"));
  for (const std::string& part : GetParam().message) EXPECT_THAT(message, HasSubstr(part));
}

const std::string kF32 = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string many_extents(int count) {
  std::string shape = "1";
  for (int i = 1; i < count; ++i) shape += ",1";
  return one(fmt::format(R"("dtype":"U8","shape":[{}],"data_offsets":[0,1])", shape), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Length, SafetensorsRefuses,
    ::testing::Values(Refused{"empty", "", {"0 bytes", "at least 8"}},
                      Refused{"seven_bytes", std::string(7, '\0'), {"7 bytes", "at least 8"}},
                      Refused{"length_above_limit", u64_le(100'000'001) + "{}", {"100000001", "100000000"}},
                      Refused{"length_2_63", u64_le(1ULL << 63) + "{}", {"9223372036854775808", "header"}},
                      Refused{"length_2_64_minus_1", u64_le(~0ULL) + "{}", {"18446744073709551615"}},
                      Refused{"length_beyond_file", u64_le(3) + "{}", {"is 3", "at most 2", "truncated"}},
                      Refused{"length_at_limit", u64_le(100'000'000) + "{}", {"100000000", "truncated"}}),
    kNameOfCase);

INSTANTIATE_TEST_SUITE_P(
    Text, SafetensorsRefuses,
    ::testing::Values(Refused{"no_json", image("", 0), {"header", "not valid JSON"}},
                      Refused{"only_spaces", image("   ", 0), {"header", "not valid JSON"}},
                      Refused{
                          "truncated_json", image(R"({"a":{"dtype":"F32")", 0), {"header", "not valid JSON"}},
                      Refused{"trailing_comma", image("{\"a\":1,}", 0), {"tensor 'a'", "1"}},
                      Refused{"two_documents", image("{}{}", 0), {"not valid JSON at byte 3"}},
                      Refused{"array", image("[]", 0), {"the document is an array", "one JSON object"}},
                      Refused{"number", image("17", 0), {"the document is 17", "one JSON object"}},
                      Refused{"string", image("\"{}\"", 0), {"the document is '{}'"}},
                      Refused{"comment", image("{}//x", 0), {"not valid JSON"}},
                      Refused{"nul_after_object", image(std::string("{}\0abc", 6), 0), {"byte 2 is NUL"}},
                      Refused{"byte_order_mark", image("\xEF\xBB\xBF{}", 0), {"byte order mark"}},
                      Refused{"stray_continuation", image("{\"\x80\":{}}", 0), {"byte 2 (0x80)", "UTF-8"}},
                      Refused{"overlong", image("{\"\xC0\xAF\":{}}", 0), {"byte 2 (0xc0)", "UTF-8"}},
                      Refused{"overlong_three", image("{\"\xE0\x80\xAF\":{}}", 0), {"byte 2", "UTF-8"}},
                      Refused{"surrogate", image("{\"\xED\xA0\x80\":{}}", 0), {"byte 2", "UTF-8"}},
                      Refused{"above_unicode", image("{\"\xF4\x90\x80\x80\":{}}", 0), {"byte 2", "UTF-8"}},
                      Refused{"cut_sequence", image("{}\xE2\x82", 0), {"byte 2", "UTF-8"}},
                      Refused{"lone_escaped_surrogate", image(R"({"\ud800":{}})", 0), {"not valid JSON"}},
                      Refused{"huge_number", one(R"("extra":1e999,)" + kF32, 8), {"not valid JSON"}}),
    kNameOfCase);

INSTANTIATE_TEST_SUITE_P(
    Fields, SafetensorsRefuses,
    ::testing::Values(
        Refused{"entry_is_number", image(R"({"a":3})", 0), {"tensor 'a'", "is 3", "an object"}},
        Refused{"entry_is_null", image(R"({"a":null})", 0), {"tensor 'a'", "null"}},
        Refused{"entry_is_array", image(R"({"a":[]})", 0), {"tensor 'a'", "an array"}},
        Refused{"no_dtype", one(R"("shape":[],"data_offsets":[0,0])", 0), {"tensor 'a'", "dtype is missing"}},
        Refused{"no_shape", one(R"("dtype":"U8","data_offsets":[0,0])", 0), {"'a'", "shape is missing"}},
        Refused{"no_offsets", one(R"("dtype":"U8","shape":[0])", 0), {"'a'", "data_offsets is missing"}},
        Refused{"unknown_dtype",
                one(R"("dtype":"F128","shape":[0],"data_offsets":[0,0])", 0),
                {"tensor 'a'", "dtype is 'F128'", "BF16"}},
        Refused{"lower_case_dtype", one(R"("dtype":"f32","shape":[0],"data_offsets":[0,0])", 0), {"'f32'"}},
        Refused{"dtype_number", one(R"("dtype":4,"shape":[0],"data_offsets":[0,0])", 0), {"dtype is 4"}},
        Refused{"dtype_object", one(R"("dtype":{},"shape":[0],"data_offsets":[0,0])", 0), {"an object"}},
        Refused{"shape_number", one(R"("dtype":"U8","shape":4,"data_offsets":[0,4])", 4), {"shape is 4"}},
        Refused{"extent_negative",
                one(R"("dtype":"U8","shape":[3,-1],"data_offsets":[0,0])", 0),
                {"tensor 'a'", "shape[1] is -1", "9223372036854775807"}},
        Refused{"extent_minus_zero",
                one(R"("dtype":"U8","shape":[-0],"data_offsets":[0,0])", 0),
                {"shape[0] is -0"}},
        Refused{"extent_float", one(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])", 1), {"is 1.0"}},
        Refused{"extent_exponent",
                one(R"("dtype":"U8","shape":[1e3],"data_offsets":[0,1000])", 1000),
                {"shape[0] is 1e3"}},
        Refused{"extent_2_63",
                one(R"("dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0])", 0),
                {"shape[1] is 9223372036854775808", "9223372036854775807"}},
        Refused{"extent_2_64",
                one(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,0])", 0),
                {"shape[0] is 18446744073709551616"}},
        Refused{"extent_string", one(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])", 1), {"is '1'"}},
        Refused{"extent_array", one(R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])", 1), {"an array"}},
        Refused{"extent_true", one(R"("dtype":"U8","shape":[true],"data_offsets":[0,1])", 1), {"is true"}},
        Refused{"too_many_extents", many_extents(65), {"shape[64]", "at most 64"}},
        Refused{"no_offset", one(R"("dtype":"U8","shape":[0],"data_offsets":[])", 0), {"an array of 0"}},
        Refused{"one_offset", one(R"("dtype":"U8","shape":[0],"data_offsets":[0])", 0), {"an array of 1"}},
        Refused{"three_offsets",
                one(R"("dtype":"U8","shape":[0],"data_offsets":[0,0,0])", 0),
                {"data_offsets[2]", "more than 2"}},
        Refused{"offset_negative",
                one(R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])", 0),
                {"data_offsets[0] is -1"}},
        Refused{"offset_exponent",
                one(R"("dtype":"U8","shape":[1000],"data_offsets":[0,1e3])", 1000),
                {"data_offsets[1] is 1e3"}},
        Refused{"offset_2_64",
                one(R"("dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616])", 1),
                {"data_offsets[1] is 18446744073709551616", "18446744073709551615"}},
        Refused{"offset_object", one(R"("dtype":"U8","shape":[1],"data_offsets":{"0":0})", 1), {"an object"}},
        Refused{"too_deep", one(fmt::format(R"("extra":{},{})", nested(200), kF32), 8), {"128 levels"}}),
    kNameOfCase);

INSTANTIATE_TEST_SUITE_P(
    Duplicates, SafetensorsRefuses,
    ::testing::Values(
        Refused{
            "tensor", image(fmt::format(R"({{"a":{{{0}}},"a":{{{0}}}}})", kF32), 8), {"tensor 'a'", "twice"}},
        Refused{"empty_tensors_of_one_name",
                image(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                      R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                      0),
                {"tensor 'a'", "twice"}},
        Refused{"escaped_name",
                image(fmt::format(R"({{"a":{{{0}}},"\u0061":{{{0}}}}})", kF32), 8),
                {"tensor 'a'", "twice"}},
        Refused{"dtype", one(R"("dtype":"U8",)" + kF32, 8), {"tensor 'a'", "dtype", "twice"}},
        Refused{"shape", one(R"("shape":[2],)" + kF32, 8), {"tensor 'a'", "shape", "twice"}},
        Refused{"offsets", one(R"("data_offsets":[0,8],)" + kF32, 8), {"data_offsets", "twice"}},
        Refused{"metadata", image(R"({"__metadata__":{},"__metadata__":{}})", 0), {"__metadata__", "twice"}},
        Refused{"metadata_key", image(R"({"__metadata__":{"k":"1","k":"2"}})", 0), {"'k'", "twice"}}),
    kNameOfCase);

INSTANTIATE_TEST_SUITE_P(
    Metadata, SafetensorsRefuses,
    ::testing::Values(
        Refused{"number", image(R"({"__metadata__":{"k":1}})", 0), {"__metadata__", "'k'", "a string"}},
        Refused{"null_value", image(R"({"__metadata__":{"k":null}})", 0), {"'k'", "null"}},
        Refused{"object", image(R"({"__metadata__":{"k":{}}})", 0), {"'k'", "an object"}},
        Refused{"array", image(R"({"__metadata__":["k"]})", 0), {"__metadata__", "an array"}},
        Refused{"string", image(R"({"__metadata__":"k"})", 0), {"__metadata__", "'k'", "object of strings"}},
        Refused{"null", image(R"({"__metadata__":null})", 0), {"__metadata__", "null"}}),
    kNameOfCase);

std::string two(std::string_view first, std::string_view second, std::size_t buffer_bytes) {
  return image(fmt::format(R"({{"a":{{"dtype":"U8",{}}},"b":{{"dtype":"U8",{}}}}})", first, second),
               buffer_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Ranges, SafetensorsRefuses,
    ::testing::Values(
        Refused{"leading_gap",
                one(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", 2),
                {"tensor 'a'", "[1, 2]", "begin 0"}},
        Refused{"hole",
                two(R"("shape":[1],"data_offsets":[0,1])", R"("shape":[1],"data_offsets":[2,3])", 3),
                {"tensor 'b'", "[2, 3]", "begin 1"}},
        Refused{"overlap",
                two(R"("shape":[2],"data_offsets":[0,2])", R"("shape":[2],"data_offsets":[1,3])", 3),
                {"tensor 'b'", "[1, 3]", "begin 2"}},
        Refused{"alias",
                two(R"("shape":[2],"data_offsets":[0,2])", R"("shape":[2],"data_offsets":[0,2])", 2),
                {"tensor 'b'", "[0, 2]", "begin 2"}},
        Refused{"reversed",
                one(R"("dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":)"
                    R"({"dtype":"U8","shape":[2],"data_offsets":[2,0])",
                    2),
                {"tensor 'b'", "[2, 0]"}},
        Refused{"product_overflow",
                one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
                {"tensor 'a'", "[4294967296, 4294967296]", "overflows"}},
        Refused{"product_overflow_before_zero",
                one(R"("dtype":"U8","shape":[8589934592,8589934592,0],"data_offsets":[0,0])", 0),
                {"tensor 'a'", "overflows"}},
        Refused{"bits_overflow",
                one(R"("dtype":"F64","shape":[288230376151711744],"data_offsets":[0,0])", 0),
                {"tensor 'a'", "[288230376151711744] of F64", "overflows"}},
        Refused{"half_byte",
                one(R"("dtype":"F4","shape":[1],"data_offsets":[0,1])", 1),
                {"tensor 'a'", "4 bits", "whole bytes"}},
        Refused{"six_bits",
                one(R"("dtype":"F6_E2M3","shape":[3],"data_offsets":[0,2])", 2),
                {"tensor 'a'", "18 bits"}},
        Refused{"range_too_short",
                one(R"("dtype":"F32","shape":[2],"data_offsets":[0,7])", 7),
                {"tensor 'a'", "[0, 7]", "7 bytes", "allowed: 8"}},
        Refused{"range_too_long",
                one(R"("dtype":"F32","shape":[2],"data_offsets":[0,9])", 9),
                {"tensor 'a'", "9 bytes", "allowed: 8"}},
        Refused{"scalar_of_two", one(R"("dtype":"F32","shape":[],"data_offsets":[0,8])", 8), {"allowed: 4"}},
        Refused{
            "empty_with_bytes", one(R"("dtype":"F32","shape":[0],"data_offsets":[0,4])", 4), {"allowed: 0"}},
        Refused{"huge_range",
                one(R"("dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615])", 1),
                {"[0, 18446744073709551615]", "allowed: 1"}},
        Refused{"missing_byte", one(kF32, 7), {"ends at byte 8", "7 bytes", "truncated"}},
        Refused{"trailing_byte", one(kF32, 9), {"ends at byte 8", "9 bytes", "no tensor"}},
        Refused{"buffer_without_tensors", image("{}", 1), {"ends at byte 0", "1 bytes", "no tensor"}}),
    kNameOfCase);

// The order of the checks is observable when a file breaks two rules: the earlier one is named.
INSTANTIATE_TEST_SUITE_P(
    EarlierRuleFirst, SafetensorsRefuses,
    ::testing::Values(
        Refused{"limit_before_file_size", u64_le(200'000'000), {"at most 100000000"}},
        Refused{"file_size_before_text", u64_le(9) + "\xFF", {"at most 1"}},
        Refused{"text_before_json", image("{\xFF", 0), {"UTF-8"}},
        Refused{"json_before_ranges", one(R"("dtype":"U8","shape":[1],"data_offsets":[5,2],)", 0), {"JSON"}},
        Refused{"range_before_overflow",
                one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[1,1])", 0),
                {"[1, 1]", "begin 0"}},
        Refused{"overflow_before_bits",
                one(R"("dtype":"F4","shape":[4611686018427387905,3],"data_offsets":[0,0])", 0),
                {"overflows"}},
        Refused{"bits_before_size", one(R"("dtype":"F4","shape":[1],"data_offsets":[0,5])", 5), {"4 bits"}},
        Refused{
            "size_before_end", one(R"("dtype":"U8","shape":[1],"data_offsets":[0,2])", 1), {"allowed: 1"}}),
    kNameOfCase);

struct Accepted {
  const char* name;
  std::string bytes;
  std::size_t entries;
};

void PrintTo(const Accepted& accepted, std::ostream* out) { *out << accepted.name; }

class SafetensorsAccepts : public ::testing::TestWithParam<Accepted> {};

TEST_P(SafetensorsAccepts, EntriesInBufferOrder) {
  const SafetensorsHeader header = parse(GetParam().bytes);
  EXPECT_EQ(header.entries.size(), GetParam().entries);
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    EXPECT_EQ(entry.begin, end);
    end = entry.end;
  }
  EXPECT_EQ(header.buffer_offset + end, GetParam().bytes.size());
}

INSTANTIATE_TEST_SUITE_P(
    Edges, SafetensorsAccepts,
    ::testing::Values(
        Accepted{"no_tensors", image("{}", 0), 0}, Accepted{"space_around", image(" \n{} \t ", 0), 0},
        Accepted{"metadata_only", image(R"({"__metadata__":{"k":"v"}})", 0), 0},
        Accepted{"scalar", one(R"("dtype":"F32","shape":[],"data_offsets":[0,4])", 4), 1},
        Accepted{"empty_extent", one(R"("dtype":"F32","shape":[3,0],"data_offsets":[0,0])", 0), 1},
        Accepted{"zero_then_huge",
                 one(R"("dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0])", 0), 1},
        Accepted{"two_empty_at_one_offset",
                 two(R"("shape":[0],"data_offsets":[0,0])", R"("shape":[0],"data_offsets":[0,0])", 0), 2},
        Accepted{"empty_before_full_at_one_offset",
                 two(R"("shape":[2],"data_offsets":[0,2])", R"("shape":[0],"data_offsets":[0,0])", 2), 2},
        Accepted{"names_out_of_order",
                 two(R"("shape":[1],"data_offsets":[1,2])", R"("shape":[1],"data_offsets":[0,1])", 2), 2},
        Accepted{"extra_fields", one(R"("note":{"x":[1e3,-1,{"dtype":null}]},"n":null,)" + kF32, 8), 1},
        Accepted{"empty_name", image(fmt::format(R"({{"":{{{}}}}})", kF32), 8), 1},
        Accepted{"unicode_name",
                 image(fmt::format("{{\"w\xC3\xA9\xF0\x9F\x8C\x8D\\u0000\":{{{}}}}}", kF32), 8), 1},
        Accepted{"two_f4", one(R"("dtype":"F4","shape":[2],"data_offsets":[0,1])", 1), 1},
        Accepted{"four_f6", one(R"("dtype":"F6_E3M2","shape":[4],"data_offsets":[0,3])", 3), 1},
        Accepted{"most_extents", many_extents(64), 1},
        Accepted{"deep_extra_field", one(fmt::format(R"("extra":{},{})", nested(128), kF32), 8), 1}),
    kNameOfCase);

TEST(Safetensors, HeaderCarriesNamesShapesRangesAndMetadata) {
  const auto header = parse(image(R"({"__metadata__":{"format":"pt"},)"
                                  R"("z":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                                  R"("a":{"dtype":"I64","shape":[1],"data_offsets":[12,20]}})",
                                  20));
  ASSERT_EQ(header.entries.size(), 2U);
  EXPECT_EQ(header.entries[0].name, "z");
  EXPECT_EQ(header.entries[0].dtype, DType::bf16);
  EXPECT_EQ(header.entries[0].shape, (Shape{2, 3}));
  EXPECT_EQ(header.entries[1].name, "a");
  EXPECT_EQ(header.entries[1].begin, 12U);
  EXPECT_EQ(header.entries[1].end, 20U);
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(Safetensors, MessagesArePrintableAndShortWhateverTheName) {
  const std::string name = "\\u0007\\u001b[31m" + std::string(5000, 'n');
  const auto message = refusal<InvalidCheckpoint>([&] { parse(image("{\"" + name + "\":3}", 0)); });
  EXPECT_LT(message.size(), 400U);
  EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](unsigned char c) { return c >= 0x20; }));
}

TEST(Safetensors, ManyTensorsParseInOnePass) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += fmt::format(R"({}"t{}":{{"dtype":"U8","shape":[],"data_offsets":[{},{}]}})", i == 0 ? "" : ",",
                          99'999 - i, i, i + 1);
  }
  EXPECT_EQ(parse(image(header + "}", 100'000)).entries.size(), 100'000U);
}

/// One tensor per dtype with a scalar-like, an empty and a filled shape, bytes all different.
TensorMap tensors_of_every_dtype() {
  TensorMap tensors;
  unsigned char next = 1;
  for (const DType dtype : kAllDTypes) {
    const std::string name(safetensors_name(dtype));
    std::vector<Shape> shapes = {{3, 8}, {0, 4}};
    if (size_bits(dtype) >= 8) shapes.push_back({});
    for (const Shape& shape : shapes) {
      Tensor tensor = Tensor::zeros(dtype, shape);
      for (std::byte& byte : tensor.mutable_bytes()) byte = std::byte{next++};
      tensors.emplace(fmt::format("{}{}", name, to_string(shape)), tensor);
    }
  }
  return tensors;
}

void expect_same(const TensorMap& actual, const TensorMap& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_TRUE(actual.at(name).same_bytes(tensor)) << name;
  }
}

TEST(Safetensors, EveryDTypeComesBackByteForByte) {
  const TemporaryFolder folder;
  const TensorMap written = tensors_of_every_dtype();
  const std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                       {"quote\"\\", "line\nbreak \xC3\xA9"}};
  write_safetensors(folder / "t.safetensors", written, metadata);
  const SafetensorsFile file(folder / "t.safetensors");
  EXPECT_EQ(file.header().metadata, metadata);
  expect_same(file.tensors(), written);
  EXPECT_THAT(names_in(folder), ElementsAre("t.safetensors"));
}

TEST(Safetensors, NoTensorsComeBackAsNone) {
  const TemporaryFolder folder;
  write_safetensors(folder / "t.safetensors", {});
  EXPECT_EQ(read_file(folder / "t.safetensors"), u64_le(8) + "{}      ");
  EXPECT_TRUE(SafetensorsFile(folder / "t.safetensors").tensors().empty());
}

TEST(Safetensors, WriterPutsWideElementsFirstThenNamesAndPadsTheHeader) {
  const TemporaryFolder folder;
  const std::vector<float> pi = {3.25F};
  TensorMap tensors;
  tensors.emplace("b", Tensor::from({1}, pi));
  tensors.emplace("a", Tensor::zeros(DType::u8, {1}));
  tensors.emplace("c", Tensor::zeros(DType::i64, {}));
  tensors.emplace("d", Tensor::zeros(DType::u32, {0}));
  write_safetensors(folder / "t.safetensors", tensors);
  const std::string header = R"({"c":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
                             R"("d":{"dtype":"U32","shape":[0],"data_offsets":[12,12]},)"
                             R"("a":{"dtype":"U8","shape":[1],"data_offsets":[12,13]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string buffer = std::string(8, '\0') + std::string("\0\0\x50\x40", 4) + std::string(1, '\0');
  EXPECT_EQ(read_file(folder / "t.safetensors"), u64_le(padded.size()) + padded + buffer);
}

TEST(Safetensors, WriterRefusesNamesTheFormatCannotHold) {
  const TemporaryFolder folder;
  const fs::path file = folder / "t.safetensors";
  const Tensor tensor = Tensor::zeros(DType::u8, {1});
  EXPECT_THAT(refusal<InvalidInput>([&] {
                write_safetensors(file, {{"__metadata__", tensor}});
              }),
              HasSubstr("__metadata__"));
  EXPECT_THAT(refusal<InvalidInput>([&] {
                write_safetensors(file, {{"\xFF", tensor}});
              }),
              AllOf(HasSubstr("UTF-8"), HasSubstr("\\xff")));
  EXPECT_THAT(refusal<InvalidInput>([&] {
                write_safetensors(file, {}, {{"k", "\xC3"}});
              }),
              HasSubstr("UTF-8"));
  EXPECT_TRUE(names_in(folder).empty());
}

TEST(Safetensors, TensorsAreMappedNotCopiedAndOutliveTheFile) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1, 2, 3, 4};
  write_safetensors(folder / "t.safetensors", {{"a", Tensor::from({4}, values)}});
  Tensor first, second;
  {
    const SafetensorsFile file(folder / "t.safetensors");
    first = file.tensor("a");
    second = file.tensor("a");
  }
  EXPECT_EQ(first.bytes().data(), second.bytes().data());
  fs::remove(folder / "t.safetensors");
  EXPECT_THAT(first.f32(), ::testing::ElementsAreArray(values));
  second.mutable_f32()[0] = 9;
  EXPECT_EQ(first.f32()[0], 1);
}

// A header that is no multiple of 8 long, or a narrow tensor in front, leaves wide elements misaligned.
TEST(Safetensors, MisalignedTensorsAreReadableAsTheirType) {
  const TemporaryFolder folder;
  for (std::size_t padding = 0; padding < 8; ++padding) {
    const std::string header = R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                               R"("b":{"dtype":"I64","shape":[2],"data_offsets":[3,19]}})" +
                               std::string(padding, ' ');
    write_file(folder / "t.safetensors", image(header, 19));
    const Tensor b = SafetensorsFile(folder / "t.safetensors").tensor("b");
    const auto values = b.as<std::int64_t>();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.data()) % alignof(std::int64_t), 0U);
    EXPECT_EQ(values[0], 0x0A09080706050403);
    EXPECT_EQ(values[1], 0x1211100F0E0D0C0B);
  }
}

TEST(Safetensors, LookUpIsByExactName) {
  const TemporaryFolder folder;
  write_file(folder / "t.safetensors",
             two(R"("shape":[1],"data_offsets":[1,2])", R"("shape":[1],"data_offsets":[0,1])", 2));
  const SafetensorsFile file(folder / "t.safetensors");
  EXPECT_EQ(file.tensor("a").bytes()[0], std::byte{1});
  EXPECT_EQ(file.tensor("b").bytes()[0], std::byte{0});
  for (const char* absent : {"", "A", "aa", "c"}) {
    EXPECT_FALSE(file.contains(absent));
    EXPECT_THAT(
        refusal<InvalidCheckpoint>([&] { file.tensor(absent); }),
        AllOf(HasSubstr("t.safetensors"), HasSubstr(fmt::format("'{}'", absent)), HasSubstr("missing")));
  }
}

TEST(Safetensors, FilesThatCannotBeMappedAreRefusedWithoutBlocking) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& name) { return SafetensorsFile(folder / name); };
  write_file(folder / "empty", "");
  write_file(folder / "short", "1234567");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { open("empty"); }),
              AllOf(HasSubstr("empty"), HasSubstr("0 byte")));
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { open("short"); }), HasSubstr("7 bytes"));
  EXPECT_THAT(refusal<IoError>([&] { open("absent"); }), AllOf(HasSubstr("absent"), HasSubstr("open")));
  EXPECT_THAT(refusal<IoError>([&] { open("pipe"); }), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal<IoError>([&] { open("."); }), HasSubstr("not a regular file"));
}

TEST(Safetensors, TruncationAnywhereIsRefused) {
  const TemporaryFolder folder;
  write_safetensors(folder / "t.safetensors", tensors_of_every_dtype());
  const std::string whole = read_file(folder / "t.safetensors");
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    EXPECT_THROW(parse(std::string_view(whole).substr(0, length)), InvalidCheckpoint) << length;
  }
}

TEST(Safetensors, StoriesCheckpointHasItsTensors) {
  const SafetensorsFile file(stories_folder() / "model.safetensors");
  EXPECT_EQ(file.header().entries.size(), 47U);
  EXPECT_EQ(file.header().metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(file.tensor("model.embed_tokens.weight").shape(), (Shape{512, 64}));
  EXPECT_EQ(file.tensor("model.layers.4.mlp.down_proj.weight").shape(), (Shape{64, 172}));
  for (const SafetensorsEntry& entry : file.header().entries)
    EXPECT_EQ(entry.dtype, DType::f32) << entry.name;
}

TEST(Safetensors, GoldenTokensAndLogitsAreReadable) {
  const SafetensorsFile file(stories_folder() / "golden.safetensors");
  EXPECT_EQ(file.tensor("logits").shape(), (Shape{64, 512}));
  const Tensor tokens = file.tensor("tokens");
  EXPECT_EQ(tokens.as<std::int64_t>().size(), 256U);
  EXPECT_EQ(tokens.as<std::int64_t>()[0], 1);
}

}  // namespace
}  // namespace shardcheck
