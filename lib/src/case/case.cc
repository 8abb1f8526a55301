#include "shardcheck/case/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

namespace shardcheck {
namespace {

constexpr std::size_t kMaxLineBytes = 4096;
constexpr std::int64_t kMaxTokens = 65536;
constexpr std::int64_t kMaxParameters = std::int64_t{1} << 31;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_printable(char c) { return c > ' ' && c <= '~'; }

/// Text for messages: printable, at most 60 bytes.
std::string shown(std::string_view text) {
  constexpr std::size_t kLimit = 60;
  std::string out;
  for (char c : text.substr(0, kLimit)) out += is_printable(c) || c == ' ' ? c : '?';
  if (text.size() > kLimit) out += "...";
  return out;
}

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view allowed) {
  throw InvalidCase(fmt::format("{}={}: allowed is {}", key, shown(value), allowed));
}

template <typename Number>
bool parse_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

std::string shortest(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

bool is_name(std::string_view text) {
  return !text.empty() && is_lower(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_lower(c) || is_digit(c) || c == '_'; });
}

bool is_fault(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (!is_name(text.substr(0, colon))) return false;
  if (colon == std::string_view::npos) return true;
  const std::string_view argument = text.substr(colon + 1);
  return !argument.empty() && std::all_of(argument.begin(), argument.end(), [](char c) {
    return is_lower(c) || is_digit(c) || c == '_' || c == '.' || c == '-';
  });
}

/// One key of the grammar: how a field is read and printed.
struct Field {
  std::string key;
  std::string allowed;
  std::function<std::string(const Case&)> get;
  std::function<void(Case&, std::string_view)> set;
};

/// `field` maps a case to a reference to the number.
template <typename Access>
Field integer_field(std::string key, std::int64_t low, std::int64_t high, Access field) {
  const std::string allowed = fmt::format("a whole number in {}..{}", low, high);
  return {key, allowed, [field](const Case& c) { return std::to_string(field(c)); },
          [=](Case& c, std::string_view text) {
            std::int64_t value = 0;
            if (!parse_number(text, value) || value < low || value > high) refuse(key, text, allowed);
            field(c) = value;
          }};
}

/// Numbers in [low, high], or in (low, high] when `open`.
template <typename Access>
Field real_field(std::string key, double low, bool open, double high, Access field) {
  const std::string allowed =
      fmt::format("a number in {}{}..{}", open ? "more than " : "", shortest(low), shortest(high));
  return {key, allowed, [field](const Case& c) { return shortest(field(c)); },
          [=](Case& c, std::string_view text) {
            double value = 0.0;
            // Written so that NaN is refused.
            if (!parse_number(text, value) || !(open ? value > low : value >= low) || !(value <= high))
              refuse(key, text, allowed);
            field(c) = value;
          }};
}

/// A field with a closed list of spellings.
template <typename Value, typename Access>
Field choice_field(std::string key, std::vector<std::pair<std::string, Value>> choices, Access field) {
  std::string allowed;
  for (const auto& [name, value] : choices) allowed += (allowed.empty() ? "" : "|") + name;
  return {key, allowed,
          [=](const Case& c) {
            for (const auto& [name, value] : choices) {
              if (value == field(c)) return name;
            }
            return std::string("unknown");
          },
          [=](Case& c, std::string_view text) {
            for (const auto& [name, value] : choices) {
              if (name == text) {
                field(c) = value;
                return;
              }
            }
            refuse(key, text, allowed);
          }};
}

template <typename Access>
Field flag_field(std::string key, Access field) {
  return choice_field<bool>(std::move(key), {{"false", false}, {"true", true}}, field);
}

template <typename Access>
Field layout_field(std::string key, Access field) {
  return {key, "NAME[:axisN,...], e.g. seed:tp2", [field](const Case& c) { return to_string(field(c)); },
          [=](Case& c, std::string_view text) {
            try {
              field(c) = parse_layout_name(text);
            } catch (const InvalidInput& error) {
              throw InvalidCase(fmt::format("{}={}: {}", key, shown(text), error.what()));
            }
          }};
}

/// Ascending TP degrees, "1,2,4"; "all" stands for every degree the geometry divides by.
Field degrees_field() {
  const std::string allowed = "all, or ascending degrees in 1..1024 like 1,2,4";
  return {
      "degrees", allowed,
      [](const Case& c) { return c.degrees.empty() ? "all" : fmt::format("{}", fmt::join(c.degrees, ",")); },
      [allowed](Case& c, std::string_view text) {
        std::vector<int> degrees;
        for (std::string_view rest = text; text != "all" && !rest.empty();) {
          const std::size_t comma = rest.find(',');
          int degree = 0;
          const bool ascending = parse_number(rest.substr(0, comma), degree) && degree <= 1024 &&
                                 degree > (degrees.empty() ? 0 : degrees.back());
          if (!ascending || comma + 1 == rest.size()) refuse("degrees", text, allowed);
          degrees.push_back(degree);
          rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
        }
        if (degrees.empty() && text != "all") refuse("degrees", text, allowed);
        c.degrees = std::move(degrees);
      }};
}

Field fault_field() {
  const std::string allowed = "NAME or NAME:ARGUMENT in lower-case words";
  return {"fault", allowed, [](const Case& c) { return c.fault; },
          [allowed](Case& c, std::string_view text) {
            if (!text.empty() && !is_fault(text)) refuse("fault", text, allowed);
            c.fault = text;
          }};
}

Field input_field() {
  return {"input", "UTF-8 text, quoted as a JSON string when it holds blanks",
          [](const Case& c) { return c.input; },
          [](Case& c, std::string_view text) {
            try {
              (void)nlohmann::json(std::string(text)).dump();
            } catch (const nlohmann::json::exception&) {
              refuse("input", text, "UTF-8 text");
            }
            c.input = text;
          }};
}

constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;

std::vector<Field> geometry_fields() {
  return {
      integer_field(
          "d_model", 1, kMaxWidth, [](auto& c) -> auto& { return c.geometry.d_model; }),
      integer_field(
          "layers", 1, 256, [](auto& c) -> auto& { return c.geometry.n_layers; }),
      integer_field(
          "heads", 1, 1024, [](auto& c) -> auto& { return c.geometry.n_heads; }),
      integer_field(
          "kv_heads", 1, 1024, [](auto& c) -> auto& { return c.geometry.n_kv_heads; }),
      integer_field(
          "head_dim", 1, 1024, [](auto& c) -> auto& { return c.geometry.head_dim; }),
      integer_field(
          "ffn", 1, kMaxWidth, [](auto& c) -> auto& { return c.geometry.ffn; }),
      integer_field(
          "vocab", 1, kMaxWidth, [](auto& c) -> auto& { return c.geometry.vocab; }),
      real_field(
          "norm_eps", 0.0, true, 1.0, [](auto& c) -> auto& { return c.geometry.norm_eps; }),
      choice_field<Rope>(
          "rope", {{"none", Rope::none}, {"half", Rope::half}},
          [](auto& c) -> auto& { return c.geometry.rope; }),
      real_field(
          "rope_theta", 1.0, false, 1e9, [](auto& c) -> auto& { return c.geometry.rope_theta; }),
      flag_field(
          "tied", [](auto& c) -> auto& { return c.geometry.tied; }),
      flag_field(
          "qkv_bias", [](auto& c) -> auto& { return c.geometry.qkv_bias; }),
      flag_field(
          "o_bias", [](auto& c) -> auto& { return c.geometry.o_bias; }),
      flag_field(
          "qk_norm", [](auto& c) -> auto& { return c.geometry.qk_norm; }),
  };
}

std::vector<Field> run_fields() {
  return {
      choice_field<DType>(
          "dtype", {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}},
          [](auto& c) -> auto& { return c.dtype; }),
      choice_field<Arithmetic>(
          "arithmetic",
          {{"native", Arithmetic::native}, {"tree", Arithmetic::tree}, {"exact", Arithmetic::exact}},
          [](auto& c) -> auto& { return c.arithmetic; }),
      choice_field<TreeShape>(
          "tree_shape", {{"halving", TreeShape::halving}, {"linear", TreeShape::linear}},
          [](auto& c) -> auto& { return c.tree_shape; }),
      integer_field(
          "leaf", 1, kMaxWidth, [](auto& c) -> auto& { return c.leaf; }),
      integer_field(
          "key_block", 1, kMaxTokens, [](auto& c) -> auto& { return c.key_block; }),
      degrees_field(),
      choice_field<CoverExchange>(
          "exchange",
          {{"automatic", CoverExchange::automatic},
           {"one_shot", CoverExchange::one_shot},
           {"two_shot", CoverExchange::two_shot}},
          [](auto& c) -> auto& { return c.exchange; }),
      choice_field<WeightStyle>(
          "weights", {{"powered", WeightStyle::powered}, {"recorded", WeightStyle::recorded}},
          [](auto& c) -> auto& { return c.weights; }),
      layout_field(
          "source", [](auto& c) -> auto& { return c.source; }),
      layout_field(
          "target", [](auto& c) -> auto& { return c.target; }),
      layout_field(
          "via", [](auto& c) -> auto& { return c.via; }),
      integer_field(
          "batch", 1, kMaxTokens, [](auto& c) -> auto& { return c.batch; }),
      integer_field(
          "length", 1, kMaxTokens, [](auto& c) -> auto& { return c.length; }),
      {"seed", "a whole number in 0..18446744073709551615",
       [](const Case& c) { return std::to_string(c.seed); },
       [](Case& c, std::string_view text) {
         if (!parse_number(text, c.seed)) refuse("seed", text, "a whole number in 0..18446744073709551615");
       }},
      fault_field(),
      input_field(),
  };
}

/// In print order.
const std::vector<Field>& fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> list = geometry_fields();
    for (Field& field : run_fields()) list.push_back(std::move(field));
    return list;
  }();
  return all;
}

const Field& field_named(std::string_view key) {
  std::vector<std::string> known;
  for (const Field& field : fields()) {
    if (field.key == key) return field;
    known.push_back(field.key);
  }
  const std::string nearest = nearest_name(key, known);
  throw InvalidCase(fmt::format("unknown key '{}'{}; known are {}", shown(key),
                                nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest),
                                fmt::join(known, " ")));
}

/// Upper bound of the parameters; cannot overflow within the limits of the single fields.
std::int64_t parameter_count(const Geometry& g) {
  const std::int64_t attention = g.d_model * (2 * g.attention_width() + 2 * g.kv_width());
  const std::int64_t vectors = 3 * g.d_model + 2 * g.head_dim + g.attention_width() + 2 * g.kv_width();
  return g.n_layers * (attention + 3 * g.d_model * g.ffn + vectors) + (g.tied ? 1 : 2) * g.vocab * g.d_model +
         g.d_model;
}

/// What a forward pass of the case costs, in multiply-adds, and the largest of its activations, in elements.
struct Work {
  double multiply_adds = 0.0;
  double largest_activation = 0.0;
};

Work work_of(const Case& c) {
  const Geometry& g = c.geometry;
  const auto tokens = static_cast<double>(c.batch * c.length);
  const auto d = static_cast<double>(g.d_model), vocab = static_cast<double>(g.vocab);
  const auto width = static_cast<double>(g.attention_width()), ffn = static_cast<double>(g.ffn);
  const double layer = d * (2.0 * width + 2.0 * static_cast<double>(g.kv_width()) + 3.0 * ffn) +
                       2.0 * static_cast<double>(c.length) * width;
  Work work;
  work.multiply_adds = tokens * (static_cast<double>(g.n_layers) * layer + d * vocab);
  work.largest_activation = tokens * std::max({d, width, ffn, vocab});
  return work;
}

/// A case runs about two dozen forward passes; one that would take hours or tens of gigabytes is refused
/// before anything is allocated.
void require_bounded_work(const Case& c) {
  constexpr double kMaxMultiplyAdds = 0x1p37, kMaxActivation = 0x1p28;
  const Work work = work_of(c);
  if (work.multiply_adds > kMaxMultiplyAdds)
    throw InvalidCase(
        fmt::format("length={} batch={} layers={}: a forward pass of this case takes {:.1e} "
                    "multiply-adds, allowed is at most {:.1e}",
                    c.length, c.batch, c.geometry.n_layers, work.multiply_adds, kMaxMultiplyAdds));
  if (work.largest_activation > kMaxActivation)
    throw InvalidCase(
        fmt::format("length={} batch={}: the largest activation of this case has {:.1e} elements, "
                    "allowed are at most {:.1e}",
                    c.length, c.batch, work.largest_activation, kMaxActivation));
}

/// What no single field can say.
void require_consistent(const Case& c) {
  const Geometry& g = c.geometry;
  if (g.n_heads % g.n_kv_heads != 0)
    refuse("kv_heads", std::to_string(g.n_kv_heads), fmt::format("a divisor of heads={}", g.n_heads));
  if (g.rope != Rope::none && g.head_dim % 2 != 0)
    refuse("head_dim", std::to_string(g.head_dim), "an even number with rope=half");
  if (c.batch * c.length > kMaxTokens)
    refuse("length", std::to_string(c.length),
           fmt::format("at most {} with batch={} ({} tokens)", kMaxTokens / c.batch, c.batch, kMaxTokens));
  require_bounded_work(c);
  if (!c.degrees.empty()) (void)contract_of(c);
  const std::int64_t parameters = parameter_count(g);
  if (parameters > kMaxParameters)
    throw InvalidCase(
        fmt::format("the geometry has {} parameters: allowed is at most {}", parameters, kMaxParameters));
  try {
    validate(g);
  } catch (const InvalidInput& error) {
    throw InvalidCase(error.what());
  }
}

/// Reads words, `key=value` pairs and JSON strings from a line.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) { skip_blanks(); }

  bool at_end() const { return rest_.empty(); }

  /// Up to the next blank.
  std::string_view word() {
    const std::string_view taken = take_while([](char c) { return !is_blank(c); });
    skip_blanks();
    return taken;
  }

  /// Up to '=', which is consumed. Throws when the word has none.
  std::string_view key() {
    const std::string_view taken = take_while([](char c) { return !is_blank(c) && c != '='; });
    if (rest_.empty() || rest_.front() != '=')
      throw InvalidCase(fmt::format("'{}': every word after the law is key=value", shown(taken)));
    rest_.remove_prefix(1);
    return taken;
  }

  std::string value(std::string_view key) {
    return !rest_.empty() && rest_.front() == '"' ? quoted(key) : plain(key);
  }

 private:
  template <typename Predicate>
  std::string_view take_while(Predicate predicate) {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), predicate);
    const auto length = static_cast<std::size_t>(end - rest_.begin());
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return taken;
  }

  void skip_blanks() { take_while(is_blank); }

  std::string plain(std::string_view key) {
    const std::string_view text = word();
    const bool clean = std::all_of(text.begin(), text.end(),
                                   [](char c) { return is_printable(c) && c != '"' && c != '\\'; });
    if (!clean) refuse(key, text, "printable ASCII, or a JSON string in double quotes");
    return std::string(text);
  }

  std::string quoted(std::string_view key) {
    const std::string_view literal = rest_.substr(0, quoted_length());
    const nlohmann::json parsed = nlohmann::json::parse(literal, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_string()) refuse(key, literal, "a well-formed JSON string");
    rest_.remove_prefix(literal.size());
    if (!rest_.empty() && !is_blank(rest_.front()))
      refuse(key, literal, "a JSON string followed by a blank or the end of the line");
    skip_blanks();
    return parsed.get<std::string>();
  }

  /// Bytes of the string literal at the front, both quotes included; all of the rest when it does not end.
  std::size_t quoted_length() const {
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '\\') {
        ++i;
      } else if (rest_[i] == '"') {
        return i + 1;
      }
    }
    return rest_.size();
  }

  std::string_view rest_;
};

std::string spelled(const std::string& value) {
  const bool plain = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return is_printable(c) && c != '"' && c != '\\';
  });
  if (plain) return value;
  return nlohmann::json(value).dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

void require_line_length(std::size_t bytes, std::string_view what) {
  if (bytes > kMaxLineBytes)
    throw InvalidCase(fmt::format("{} has {} bytes: allowed is at most {}", what, bytes, kMaxLineBytes));
}

}  // namespace

Geometry default_geometry() {
  Geometry g;
  g.d_model = 8;
  g.n_layers = 1;
  g.n_heads = 1;
  g.n_kv_heads = 1;
  g.head_dim = 8;
  g.ffn = 8;
  g.vocab = 16;
  return g;
}

Case parse_case(std::string_view line) {
  require_line_length(line.size(), "the case line");
  LineReader reader(line);
  Case c;
  if (reader.at_end()) throw InvalidCase("an empty line: the first word of a case is its law");
  const std::string_view law = reader.word();
  if (!is_name(law))
    throw InvalidCase(
        fmt::format("'{}': the first word of a case is its law, a name in lower-case words", shown(law)));
  c.law = law;
  std::set<std::string, std::less<>> seen;
  while (!reader.at_end()) {
    const std::string_view key = reader.key();
    const Field& field = field_named(key);
    const std::string value = reader.value(key);
    if (!seen.insert(field.key).second)
      throw InvalidCase(fmt::format("{}={}: the key is given twice", key, shown(value)));
    field.set(c, value);
  }
  require_consistent(c);
  // Escapes may make the canonical spelling longer than the line that was read.
  require_line_length(print_case(c).size(), "the canonical case line");
  return c;
}

std::string print_case(const Case& c) {
  static const Case defaults;
  std::string line = c.law;
  for (const Field& field : fields()) {
    const std::string value = field.get(c);
    if (value != field.get(defaults)) line += fmt::format(" {}={}", field.key, spelled(value));
  }
  return line;
}

Contract contract_of(const Case& c) {
  try {
    return contract_for(c.geometry, {.shape = c.tree_shape,
                                     .degrees = c.degrees,
                                     .leaf = c.leaf,
                                     .key_block = c.key_block,
                                     .storage = c.dtype});
  } catch (const std::invalid_argument& refusal) {
    throw InvalidCase(refusal.what());
  }
}

const std::vector<CaseKey>& case_keys() {
  static const std::vector<CaseKey> keys = [] {
    std::vector<CaseKey> list;
    for (const Field& field : fields()) list.push_back({field.key, field.allowed, field.get(Case{})});
    return list;
  }();
  return keys;
}

void set_case_key(Case& c, std::string_view key, std::string_view value) { field_named(key).set(c, value); }

std::string get_case_key(const Case& c, std::string_view key) { return field_named(key).get(c); }

}  // namespace shardcheck
