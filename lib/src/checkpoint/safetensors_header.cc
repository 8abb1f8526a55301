#include "checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "text/json_guard.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxExtents = 64;
constexpr std::size_t kMaxMetadata = 1'000'000;

/// Receives the parser's events. Nothing but the entries is kept, so memory is a small multiple of the
/// header's size, and ignored fields cost none.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& origin) : origin_(origin) {}

  SafetensorsHeader take() {
    require_distinct_names();
    return std::move(header_);
  }

  bool null() override { return other_scalar("null"); }
  bool boolean(bool value) override { return other_scalar(value ? "true" : "false"); }
  bool number_integer(json::number_integer_t value) override {
    // The lexer hands over only what starts with a minus sign.
    return other_scalar(value == 0 ? "-0" : fmt::to_string(value));
  }
  bool number_float(json::number_float_t, const std::string& text) override { return other_scalar(text); }
  bool binary(json::binary_t&) override { return other_scalar("binary"); }

  bool number_unsigned(json::number_unsigned_t value) override {
    if (place_ == Place::shape && skipped_ == 0) return add_extent(value);
    if (place_ == Place::offsets && skipped_ == 0) return add_offset(value);
    return other_scalar(fmt::to_string(value));
  }

  bool string(std::string& text) override {
    if (skipped_ == 0 && place_ == Place::metadata) return add_metadata(std::move(text));
    if (skipped_ == 0 && place_ == Place::tensor && field_ == Field::dtype) return set_dtype(text);
    return other_scalar(quote(text));
  }

  bool key(std::string& text) override {
    if (skipped_ > 0) return true;
    switch (place_) {
      case Place::top:
      case Place::metadata:
        key_ = std::move(text);
        return true;
      case Place::tensor:
        begin_field(text);
        return true;
      default:
        return true;
    }
  }

  bool start_object(std::size_t) override {
    if (enter_skipped()) return true;
    if (place_ == Place::start) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      key_ == kMetadataKey ? begin_metadata() : begin_tensor();
    } else {
      refuse("an object");
    }
    return true;
  }

  bool end_object() override {
    if (leave_skipped()) return true;
    if (place_ == Place::tensor) require_all_fields();
    place_ = place_ == Place::top ? Place::start : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (enter_skipped()) return true;
    if (place_ == Place::tensor && field_ == Field::shape) {
      place_ = Place::shape;
    } else if (place_ == Place::tensor && field_ == Field::offsets) {
      place_ = Place::offsets;
    } else {
      refuse("an array");
    }
    return true;
  }

  bool end_array() override {
    if (leave_skipped()) return true;
    if (place_ == Place::offsets && offsets_ != 2) refuse(fmt::format("an array of {}", offsets_));
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception& error) override {
    throw InvalidCheckpoint(
        fmt::format("{}: header: not valid JSON at byte {}: {}", origin_, position, shown(error)));
  }

 private:
  enum class Place { start, top, metadata, tensor, shape, offsets };
  enum class Field { none, dtype, shape, offsets, ignored };

  SafetensorsEntry& entry() { return header_.entries.back(); }

  /// Everything below an ignored field of a tensor is skipped; only its depth is watched.
  bool enter_skipped() {
    if (skipped_ == 0 && !(place_ == Place::tensor && field_ == Field::ignored)) return false;
    if (++skipped_ > kMaxJsonDepth) {
      throw InvalidCheckpoint(
          fmt::format("{}: header: {} is nested deeper than {} levels, which is the limit", origin_,
                      subject(), kMaxJsonDepth));
    }
    return true;
  }

  bool leave_skipped() {
    if (skipped_ == 0) return false;
    --skipped_;
    return true;
  }

  bool other_scalar(std::string_view found) {
    const bool ignored = skipped_ > 0 || (place_ == Place::tensor && field_ == Field::ignored);
    if (!ignored) refuse(found.size() > kShownBytes ? quote(found) : std::string(found));
    return true;
  }

  void begin_metadata() {
    if (has_metadata_) refuse_twice(kMetadataKey);
    has_metadata_ = true;
    place_ = Place::metadata;
  }

  void begin_tensor() {
    header_.entries.emplace_back();
    entry().name = std::move(key_);
    has_dtype_ = has_shape_ = has_offsets_ = false;
    place_ = Place::tensor;
    field_ = Field::none;
  }

  void begin_field(std::string_view text) {
    field_ = text == "dtype"          ? Field::dtype
             : text == "shape"        ? Field::shape
             : text == "data_offsets" ? Field::offsets
                                      : Field::ignored;
    if (bool* const seen = seen_flag()) {
      if (*seen) refuse_twice(text);
      *seen = true;
    }
    offsets_ = 0;
  }

  bool* seen_flag() {
    switch (field_) {
      case Field::dtype:
        return &has_dtype_;
      case Field::shape:
        return &has_shape_;
      case Field::offsets:
        return &has_offsets_;
      default:
        return nullptr;
    }
  }

  bool add_metadata(std::string text) {
    if (header_.metadata.size() == kMaxMetadata) {
      throw InvalidCheckpoint(fmt::format("{}: header: more than {} metadata entries, which is the limit",
                                          origin_, kMaxMetadata));
    }
    const auto [position, is_new] = header_.metadata.emplace(std::move(key_), std::move(text));
    if (!is_new) refuse_twice(fmt::format("{} of {}", quote(position->first), kMetadataKey));
    return true;
  }

  bool set_dtype(std::string_view text) {
    const auto dtype = dtype_from_safetensors(text);
    if (!dtype) refuse(quote(text));
    entry().dtype = *dtype;
    return true;
  }

  bool add_extent(std::uint64_t value) {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (value > kMax) refuse(fmt::to_string(value));
    if (entry().shape.size() == kMaxExtents) refuse(fmt::format("an array of more than {}", kMaxExtents));
    entry().shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool add_offset(std::uint64_t value) {
    if (offsets_ == 2) refuse("an array of more than 2");
    (offsets_++ == 0 ? entry().begin : entry().end) = value;
    return true;
  }

  void require_all_fields() {
    const char* missing = !has_dtype_     ? "dtype"
                          : !has_shape_   ? "shape"
                          : !has_offsets_ ? "data_offsets"
                                          : nullptr;
    if (missing == nullptr) return;
    throw InvalidCheckpoint(
        fmt::format("{}: tensor {}: field {} is missing; allowed: dtype, shape and "
                    "data_offsets, each once",
                    origin_, quote(entry().name), missing));
  }

  /// Sorted once at the end: a set beside the entries would double the memory.
  void require_distinct_names() {
    std::vector<const std::string*> names;
    names.reserve(header_.entries.size());
    for (const SafetensorsEntry& e : header_.entries) names.push_back(&e.name);
    std::sort(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a < *b; });
    const auto twice =
        std::adjacent_find(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a == *b; });
    if (twice == names.end()) return;
    throw InvalidCheckpoint(fmt::format("{}: tensor {}: the name appears twice in the header; allowed: once",
                                        origin_, quote(**twice)));
  }

  [[noreturn]] void refuse_twice(std::string_view what) {
    throw InvalidCheckpoint(
        fmt::format("{}: {}: key {} appears twice; allowed: once", origin_, subject(), what));
  }

  [[noreturn]] void refuse(std::string_view found) {
    throw InvalidCheckpoint(
        fmt::format("{}: {} is {}; allowed: {}", origin_, subject_field(), found, allowed()));
  }

  std::string subject() {
    const bool in_tensor = place_ == Place::tensor || place_ == Place::shape || place_ == Place::offsets;
    return in_tensor ? fmt::format("tensor {}", quote(entry().name)) : "header";
  }

  std::string subject_field() {
    switch (place_) {
      case Place::start:
        return "header: the document";
      case Place::top:
        return key_ == kMetadataKey ? "header: __metadata__"
                                    : fmt::format("tensor {}: the entry", quote(key_));
      case Place::metadata:
        return fmt::format("header: __metadata__ entry {}", quote(key_));
      case Place::shape:
        return fmt::format("{}: shape[{}]", subject(), entry().shape.size());
      case Place::offsets:
        return fmt::format("{}: data_offsets[{}]", subject(), offsets_);
      case Place::tensor:
        break;
    }
    return fmt::format("{}: {}", subject(),
                       field_ == Field::dtype   ? "dtype"
                       : field_ == Field::shape ? "shape"
                                                : "data_offsets");
  }

  std::string_view allowed() const {
    switch (place_) {
      case Place::start:
        return "one JSON object";
      case Place::top:
        return key_ == kMetadataKey ? "an object of strings" : "an object with dtype, shape and data_offsets";
      case Place::metadata:
        return "a string";
      case Place::shape:
        return "at most 64 integers from 0 to 9223372036854775807";
      case Place::offsets:
        return "[begin, end], two integers from 0 to 18446744073709551615";
      case Place::tensor:
        break;
    }
    return field_ == Field::dtype   ? "a dtype of safetensors (BOOL, F4, U8, F16, BF16, F32, I64, ...)"
           : field_ == Field::shape ? "an array of extents"
                                    : "an array [begin, end]";
  }

  const std::string& origin_;
  SafetensorsHeader header_;
  std::string key_;  // last key of the header or of the metadata
  Place place_ = Place::start;
  Field field_ = Field::none;
  int skipped_ = 0;  // open containers below an ignored field
  int offsets_ = 0;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
};

}  // namespace

SafetensorsHeader parse_header_json(std::string_view text, const std::string& origin) {
  require_json_text<InvalidCheckpoint>(text, origin + ": header");
  HeaderReader reader(origin);
  json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace shardcheck
