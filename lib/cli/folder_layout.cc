#include "folder_layout.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "geometry_option.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/checkpoint/shard_folder.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = std::size_t{4} << 20;

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array kUnits = {Unit{"KiB", std::uint64_t{1} << 10},
                               Unit{"MiB", std::uint64_t{1} << 20},
                               Unit{"GiB", std::uint64_t{1} << 30},
                               Unit{"KB", 1'000},
                               Unit{"MB", 1'000'000},
                               Unit{"GB", 1'000'000'000},
                               Unit{"B", 1}};

std::optional<Geometry> config_geometry(const fs::path& folder) {
  const fs::path config = folder / "config.json";
  std::error_code ignored;
  if (!fs::exists(config, ignored)) return std::nullopt;
  return parse_config(read_text(config, kMaxConfigBytes), config.string()).geometry;
}

/// What a folder says about itself. A config.json of a family that is not supported counts for nothing where
/// `lenient`.
std::optional<Geometry> recorded_geometry(const fs::path& folder, bool lenient) {
  if (const auto info = read_shard_folder_info(folder); info && info->geometry) return info->geometry;
  try {
    return config_geometry(folder);
  } catch (const InvalidCheckpoint&) {
    if (!lenient) throw;
    return std::nullopt;
  }
}

}  // namespace

Geometry geometry_of(const fs::path& folder, const std::optional<std::string>& option) {
  const auto recorded = recorded_geometry(folder, option.has_value());
  if (option) return recorded ? parse_geometry(*option, *recorded) : parse_geometry(*option);
  if (!recorded) {
    throw InvalidInput(fmt::format(
        "{}: the shape of the model is unknown; allowed: config.json, a geometry in shardcheck.json, or "
        "--geometry=d_model=N,layers=N,...",
        folder.string()));
  }
  return *recorded;
}

std::pair<std::string, std::string> split_layout(const std::string& text) {
  const std::size_t slash = text.rfind('/');
  const std::size_t end = std::min(text.find(':', slash == text.npos ? 0 : slash), text.size());
  return {text.substr(0, end), text.substr(end)};
}

bool is_table_file(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".json");
}

LayoutTable table_at(const std::string& option, const std::string& name) {
  const bool is_file = is_table_file(name);
  if (is_file && ::access(name.c_str(), R_OK) != 0)
    throw IoError(fmt::format("--{}={}: cannot be read: {}", option, name, std::strerror(errno)));
  return is_file ? LayoutTable::load(name) : LayoutTable::built_in(name);
}

Layout layout_at(const std::string& option, const std::string& text, const Geometry& geometry) {
  const auto [name, axes] = split_layout(text);
  try {
    const LayoutTable table = table_at(option, name);
    return table.instantiate(geometry, parse_layout_name(table.name() + axes));
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--{}={}: {}", option, text, error.what()));
  }
}

std::string layout_text(const fs::path& folder, const std::optional<std::string>& option) {
  if (option) return *option;
  const auto info = read_shard_folder_info(folder);
  return info ? to_string(info->layout) : "hf-llama";
}

std::uint64_t parse_bytes(const std::string& option, const std::string& text, std::uint64_t low,
                          std::uint64_t high) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  std::uint64_t scale = unit.empty() ? 1 : 0;
  for (const Unit& known : kUnits)
    if (known.name == unit) scale = known.bytes;
  std::uint64_t bytes = 0;
  if (error != std::errc() || scale == 0 || __builtin_mul_overflow(number, scale, &bytes) || bytes < low ||
      bytes > high) {
    throw InvalidInput(
        fmt::format("--{}='{}' is no size; allowed: {} to {} bytes, as a whole number with B, KB, MB, GB, "
                    "KiB, MiB or GiB",
                    option, text, low, high));
  }
  return bytes;
}

std::string format_bytes(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", value / 1e9);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{} bytes", bytes);
}

namespace {

/// A folder of rank files under its layout; its config.json counts where there is one.
Checkpoint load_rank_folder(const std::filesystem::path& folder, const std::optional<std::string>& from) {
  const Layout layout = layout_at("from", layout_text(folder, from), geometry_of(folder, {}));
  Checkpoint checkpoint;
  checkpoint.config.geometry = layout.geometry;
  checkpoint.config.model_type = to_string(layout.name);
  checkpoint.logical = gather(read_shard_folder(folder, layout), layout);
  checkpoint.dtype = checkpoint.logical.at("embed").dtype();
  return checkpoint;
}

}  // namespace

Checkpoint load_source(const std::filesystem::path& folder, const std::optional<std::string>& from) {
  const bool records = read_shard_folder_info(folder).has_value();
  return records || (from && *from != "hf-llama") ? load_rank_folder(folder, from) : load_checkpoint(folder);
}

}  // namespace shardcheck
