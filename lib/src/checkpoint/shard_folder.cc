#include "shardcheck/checkpoint/shard_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>
#include <system_error>

#include "checkpoint/files.h"
#include "checkpoint/layout_names.h"
#include "checkpoint/limits.h"
#include "checkpoint/shard_record.h"
#include "text/json_guard.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;

/// Calls visit(name, field) for every field that a record always holds: one list for writing and reading.
template <typename AnyGeometry, typename Visit>
void for_each_field(AnyGeometry& g, Visit visit) {
  visit("d_model", g.d_model);
  visit("n_layers", g.n_layers);
  visit("n_heads", g.n_heads);
  visit("n_kv_heads", g.n_kv_heads);
  visit("head_dim", g.head_dim);
  visit("ffn", g.ffn);
  visit("vocab", g.vocab);
  visit("norm_eps", g.norm_eps);
  visit("rope", g.rope);
  visit("rope_theta", g.rope_theta);
  visit("tied", g.tied);
  visit("qkv_bias", g.qkv_bias);
  visit("o_bias", g.o_bias);
  visit("qk_norm", g.qk_norm);
}

/// The same for fields that a record leaves out where they have their default.
template <typename AnyGeometry, typename Visit>
void for_each_further_field(AnyGeometry& g, Visit visit) {
  visit("norm", g.norm);
  visit("rotary_dim", g.rotary_dim);
  visit("activation", g.activation);
  visit("gated", g.gated);
  visit("mlp_bias", g.mlp_bias);
  visit("sinks", g.sinks);
  visit("parallel_residual", g.parallel_residual);
  visit("alibi", g.alibi);
  visit("positions", g.positions);
  visit("n_experts", g.n_experts);
  visit("experts_per_token", g.experts_per_token);
  visit("expert_ffn", g.expert_ffn);
  visit("shared_ffn", g.shared_ffn);
  visit("dense_layers", g.dense_layers);
  visit("router_bias", g.router_bias);
  visit("q_lora", g.q_lora);
  visit("kv_lora", g.kv_lora);
  visit("nope_dim", g.nope_dim);
  visit("rope_dim", g.rope_dim);
  visit("v_dim", g.v_dim);
}

template <typename Field>
json field_json(const Field& field) {
  if constexpr (std::is_enum_v<Field>) {
    return to_string(field);
  } else {
    return field;
  }
}

json to_json(const Geometry& geometry) {
  json object = json::object(), usual = json::object();
  for_each_field(geometry, [&](const char* name, const auto& field) { object[name] = field_json(field); });
  const Geometry plain;
  for_each_further_field(plain,
                         [&](const char* name, const auto& field) { usual[name] = field_json(field); });
  for_each_further_field(geometry, [&](const char* name, const auto& field) {
    if (const json value = field_json(field); value != usual[name]) object[name] = value;
  });
  return object;
}

/// shardcheck.json of one folder, read strictly.
class RecordReader {
 public:
  RecordReader(const json& document, std::string where) : document_(document), where_(std::move(where)) {}

  ShardFolderInfo read() const {
    require_keys("", document_, {"format", "layout", "mesh"}, {"geometry", "note"});
    if (document_["format"] != kFormat) refuse("format", document_["format"], fmt::to_string(kFormat));
    ShardFolderInfo info;
    info.layout = layout();
    require_mesh_of(info.layout);
    if (document_.contains("geometry")) info.geometry = geometry();
    return info;
  }

 private:
  using Keys = std::vector<std::string>;

  [[noreturn]] void refuse(const std::string& field, const json& value, std::string_view allowed) const {
    throw InvalidCheckpoint(fmt::format("{}: {} is {}; allowed: {}", where_, field, shown(value), allowed));
  }

  void require_keys(const std::string& prefix, const json& object, const Keys& required,
                    const Keys& optional) const {
    if (!object.is_object()) refuse(prefix, object, "a JSON object");
    for (const std::string& key : required) {
      if (object.contains(key)) continue;
      throw InvalidCheckpoint(
          fmt::format("{}: required field {}{} is missing", where_, prefix.empty() ? "" : prefix + ".", key));
    }
    for (const auto& [key, value] : object.items()) {
      const auto is_key = [&key = key](const std::string& known) { return known == key; };
      if (std::any_of(required.begin(), required.end(), is_key)) continue;
      if (std::any_of(optional.begin(), optional.end(), is_key)) continue;
      throw InvalidCheckpoint(fmt::format(
          "{}: unknown field {}{}; allowed: {}{}{}", where_, prefix.empty() ? "" : prefix + ".", quote(key),
          fmt::join(required, ", "), optional.empty() ? "" : ", ", fmt::join(optional, ", ")));
    }
  }

  LayoutName layout() const {
    const json& value = document_["layout"];
    if (!value.is_string()) refuse("layout", value, "a layout name such as \"seed:tp2\"");
    try {
      return parse_layout_name(value.get_ref<const std::string&>());
    } catch (const InvalidInput& error) {
      throw InvalidCheckpoint(fmt::format("{}: layout: {}", where_, error.what()));
    }
  }

  /// The mesh repeats the degrees of the layout's name for readers that do not parse it.
  void require_mesh_of(const LayoutName& layout) const {
    const json& mesh = document_["mesh"];
    require_keys("mesh", mesh, {"tp"}, {"ep", "etp", "pp", "dp", "cp"});
    for (const auto& [axis, degree] : mesh.items()) {
      if (degree != layout.degree(axis)) {
        refuse("mesh." + axis, degree, fmt::format("{}, as layout says", layout.degree(axis)));
      }
    }
    for (const auto& [axis, degree] : layout.axes) {
      if (degree != 1 && !mesh.contains(axis)) refuse("mesh", mesh, fmt::format("{} {}", axis, degree));
    }
  }

  Geometry geometry() const {
    const json& object = document_["geometry"];
    Geometry geometry;
    Keys names, further;
    for_each_field(geometry, [&](const char* name, const auto&) { names.emplace_back(name); });
    for_each_further_field(geometry, [&](const char* name, const auto&) { further.emplace_back(name); });
    require_keys("geometry", object, names, further);
    const auto read = [&](const char* name, auto& field) {
      if (object.contains(name)) assign(fmt::format("geometry.{}", name), object[name], field);
    };
    for_each_field(geometry, read);
    for_each_further_field(geometry, read);
    try {
      validate(geometry);
    } catch (const InvalidInput& error) {
      throw InvalidCheckpoint(fmt::format("{}: geometry: {}", where_, error.what()));
    }
    return geometry;
  }

  void assign(const std::string& name, const json& value, std::int64_t& field) const {
    constexpr std::int64_t kMax = std::int64_t{1} << 24;
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= kMax;
    if (!fits) refuse(name, value, fmt::format("an integer from 0 to {}", kMax));
    field = value.get<std::int64_t>();
  }
  void assign(const std::string& name, const json& value, double& field) const {
    if (!value.is_number()) refuse(name, value, "a number");
    field = value.get<double>();
  }
  void assign(const std::string& name, const json& value, bool& field) const {
    if (!value.is_boolean()) refuse(name, value, "true or false");
    field = value.get<bool>();
  }
  void assign(const std::string& name, const json& value, Rope& field) const {
    assign_one_of<Rope>(name, value, {Rope::none, Rope::half}, field);
  }
  void assign(const std::string& name, const json& value, Norm& field) const {
    assign_one_of<Norm>(name, value, {Norm::rms, Norm::layer}, field);
  }
  void assign(const std::string& name, const json& value, Activation& field) const {
    assign_one_of<Activation>(name, value, {Activation::silu, Activation::gelu_tanh, Activation::gelu},
                              field);
  }

  template <typename Choice>
  void assign_one_of(const std::string& name, const json& value, const std::vector<Choice>& choices,
                     Choice& field) const {
    std::string allowed;
    for (const Choice choice : choices) {
      if (value == to_string(choice)) {
        field = choice;
        return;
      }
      allowed += fmt::format("{}\"{}\"", allowed.empty() ? "" : " or ", to_string(choice));
    }
    refuse(name, value, allowed);
  }

  const json& document_;
  std::string where_;
};

/// Names of the files in the folder that look like a rank's, sorted.
std::set<std::string> rank_files_in(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("rank_") && name.ends_with(".safetensors")) names.insert(name);
  }
  if (error) throw IoError(fmt::format("{}: cannot list the folder: {}", folder.string(), error.message()));
  return names;
}

/// Rank files in the folder that do not belong to this degree, sorted.
std::vector<std::string> foreign_rank_files(const fs::path& folder, int degree) {
  std::set<std::string> names = rank_files_in(folder);
  for (int rank = 0; rank < degree; ++rank) names.erase(shard_file_name(rank, degree));
  return {names.begin(), names.end()};
}

std::string rank_files_text(int degree) {
  return fmt::format("{} to {}", shard_file_name(0, degree), shard_file_name(degree - 1, degree));
}

void require_rank_files(const fs::path& folder, int degree) {
  if (const auto extra = foreign_rank_files(folder, degree); !extra.empty()) {
    throw InvalidCheckpoint(fmt::format("{}: extra rank files {}; allowed at degree {}: {}", folder.string(),
                                        quote_some(extra), degree, rank_files_text(degree)));
  }
  const std::set<std::string> present = rank_files_in(folder);
  std::vector<std::string> missing;
  for (int rank = 0; rank < degree; ++rank) {
    if (!present.contains(shard_file_name(rank, degree))) missing.push_back(shard_file_name(rank, degree));
  }
  if (missing.empty()) return;
  throw InvalidCheckpoint(fmt::format("{}: missing rank files {}; needed at degree {}: {}", folder.string(),
                                      quote_some(missing), degree, rank_files_text(degree)));
}

/// The record is written last: without one nobody can tell a whole write from a broken one.
void require_record(const fs::path& folder) {
  if (is_present(folder / kRecordFile)) return;
  throw InvalidCheckpoint(fmt::format(
      "{}: {} is missing, so the shards may be unfinished; allowed: a folder whose writer left the "
      "record behind the last rank file, at least {}",
      folder.string(), kRecordFile, R"({"format": 1, "layout": "NAME:tpN", "mesh": {"tp": N}})"));
}

void require_record_of(const fs::path& folder, const Layout& layout) {
  const auto info = read_shard_folder_info(folder);
  if (!info) return;
  const std::string where = (folder / kRecordFile).string();
  if (to_string(info->layout) != to_string(layout.name)) {
    throw InvalidCheckpoint(fmt::format("{}: layout is {}; allowed here: {}, the layout asked for", where,
                                        quote(to_string(info->layout)), quote(to_string(layout.name))));
  }
  if (info->geometry && *info->geometry != layout.geometry) {
    throw InvalidCheckpoint(fmt::format("{}: geometry is {}; allowed here: {}", where,
                                        to_string(*info->geometry), to_string(layout.geometry)));
  }
}

TensorMap tensors_of_rank(const Layout& layout, const ShardedTensors& shards, int rank) {
  TensorMap tensors;
  for (const LayoutEntry& entry : layout.entries) {
    if (!entry.placed.held_by(rank)) continue;
    tensors.emplace(entry.file_name(), shards.at(entry.name).at(static_cast<std::size_t>(rank)));
  }
  return tensors;
}

}  // namespace

std::string shard_file_name(int rank, int degree) {
  if (degree < 1 || degree > Mesh::kMaxRanks || rank < 0 || rank >= degree) {
    throw std::out_of_range(fmt::format("rank {} of degree {}: allowed are 0 <= rank < degree <= {}", rank,
                                        degree, Mesh::kMaxRanks));
  }
  return fmt::format("rank_{:05}-of-{:05}.safetensors", rank, degree);
}

std::string shard_record(const Layout& layout) {
  json mesh = json::object();
  for (const auto& [axis, degree] : layout.name.axes) mesh[axis] = degree;
  mesh["tp"] = layout.name.tp_degree();
  const json record = {{"format", kFormat},
                       {"layout", to_string(layout.name)},
                       {"mesh", std::move(mesh)},
                       {"geometry", to_json(layout.geometry)}};
  return record.dump(2) + "\n";
}

void require_shard_folder(const fs::path& folder, const Layout& layout) {
  require_folder(folder);
  require_record(folder);
  require_rank_files(folder, layout.degree);
  require_record_of(folder, layout);
}

void write_shard_folder(const fs::path& folder, const Layout& layout, const ShardedTensors& shards) {
  require_shards_of(layout, shards);
  create_folder(folder);
  if (const auto foreign = foreign_rank_files(folder, layout.degree); !foreign.empty()) {
    throw IoError(fmt::format("{}: holds rank files of another write: {}; remove them first", folder.string(),
                              quote_some(foreign)));
  }
  // A folder without its record is unfinished, so the old record goes before the first file changes.
  remove_file(folder / kRecordFile);
  for (int rank = 0; rank < layout.degree; ++rank) {
    write_safetensors(folder / shard_file_name(rank, layout.degree), tensors_of_rank(layout, shards, rank),
                      {{"format", "pt"}});
  }
  write_text_atomically(folder / kRecordFile, shard_record(layout));
}

std::optional<ShardFolderInfo> read_shard_folder_info(const fs::path& folder) {
  require_folder(folder);
  const fs::path file = folder / kRecordFile;
  if (!is_present(file)) return std::nullopt;
  const json document =
      parse_json_object<InvalidCheckpoint>(read_text(file, kMaxConfigBytes), file.string(), kMaxConfigBytes);
  return RecordReader(document, file.string()).read();
}

ShardedTensors read_rank_files(const fs::path& folder, const Layout& layout) {
  require_folder(folder);
  require_rank_files(folder, layout.degree);
  ShardedTensors shards;
  for (const LayoutEntry& entry : layout.entries) {
    shards[entry.name].resize(static_cast<std::size_t>(layout.degree));
  }
  for (int rank = 0; rank < layout.degree; ++rank) {
    const SafetensorsFile file(folder / shard_file_name(rank, layout.degree));
    require_entry_names(names_on_rank(layout, rank), names_of(file), file.path().string(),
                        fmt::format("layout {}", quote(to_string(layout.name))));
    for (const LayoutEntry& entry : layout.entries) {
      if (!entry.placed.held_by(rank)) continue;
      shards[entry.name][static_cast<std::size_t>(rank)] = file.tensor(entry.file_name());
    }
  }
  require_shards_of(layout, shards);
  return shards;
}

ShardedTensors read_shard_folder(const fs::path& folder, const Layout& layout) {
  require_shard_folder(folder, layout);
  return read_rank_files(folder, layout);
}

}  // namespace shardcheck
