#include "checkpoint/reshard_journal.h"

#include <fmt/format.h>

#include "checkpoint/files.h"
#include "checkpoint/limits.h"
#include "text/json_guard.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;

json to_json(const FileIdentity& file) {
  return {{"file", file.name},
          {"bytes", file.size_bytes},
          {"modified_ns", file.modified_ns},
          {"header_xxh3", file.header_hash}};
}

FileIdentity identity_of(const json& object) {
  return {object.at("file").get<std::string>(), object.at("bytes").get<std::uint64_t>(),
          object.at("modified_ns").get<std::int64_t>(), object.at("header_xxh3").get<std::uint64_t>()};
}

constexpr const char* kWayOut =
    "finish it with the command that began it, or drop what it did with --restart";

}  // namespace

std::optional<ReshardJournal> read_journal(const fs::path& file) {
  if (!is_present(file)) return std::nullopt;
  const json document =
      parse_json_object<InvalidCheckpoint>(read_text(file, kMaxIndexBytes), file.string(), kMaxIndexBytes);
  try {
    if (document.at("format") != kFormat) throw InvalidInput("another format");
    ReshardJournal journal;
    journal.plan_hash = document.at("plan_xxh3").get<std::uint64_t>();
    for (const json& source : document.at("sources")) journal.sources.push_back(identity_of(source));
    journal.position = {document.at("entry").get<std::uint64_t>(),
                        document.at("offset").get<std::uint64_t>()};
    journal.complete = document.at("complete").get<bool>();
    return journal;
  } catch (const std::exception&) {
    throw InvalidCheckpoint(
        fmt::format("{}: is no journal of this version; allowed: {}", file.string(), kWayOut));
  }
}

void write_journal(const fs::path& file, const ReshardJournal& journal) {
  json sources = json::array();
  for (const FileIdentity& source : journal.sources) sources.push_back(to_json(source));
  const json document = {{"format", kFormat},
                         {"plan_xxh3", journal.plan_hash},
                         {"entry", journal.position.entry},
                         {"offset", journal.position.offset},
                         {"complete", journal.complete},
                         {"sources", std::move(sources)}};
  write_text_atomically(file, document.dump(1) + "\n");
}

void require_same_reshard(const ReshardJournal& found, const ReshardJournal& now, const fs::path& target) {
  for (std::size_t i = 0; i < now.sources.size() && found.sources.size() == now.sources.size(); ++i) {
    if (found.sources[i] == now.sources[i]) continue;
    throw InvalidInput(fmt::format(
        "{}: holds an unfinished reshard of another {}: size, time or header of the source changed since; {}",
        target.string(), quote(now.sources[i].name), kWayOut));
  }
  if (found.plan_hash == now.plan_hash && found.sources.size() == now.sources.size()) return;
  throw InvalidInput(fmt::format(
      "{}: holds an unfinished reshard by another plan (layouts, source or --max-shard-size differ); {}",
      target.string(), kWayOut));
}

}  // namespace shardcheck
