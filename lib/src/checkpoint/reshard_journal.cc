#include "checkpoint/reshard_journal.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "checkpoint/files.h"
#include "checkpoint/limits.h"
#include "text/json_guard.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 2;
constexpr const char* kChecksum = "checksum_xxh3";

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

json fields_of(const ReshardJournal& journal) {
  json sources = json::array();
  for (const FileIdentity& source : journal.sources) sources.push_back(to_json(source));
  return {{"format", kFormat},
          {"plan_xxh3", journal.plan_hash},
          {"entry", journal.position.entry},
          {"offset", journal.position.offset},
          {"complete", journal.complete},
          {"sources", std::move(sources)}};
}

/// Of the fields' compact text.
std::uint64_t checksum_of(const json& fields) {
  const std::string text = fields.dump();
  return XXH3_64bits(text.data(), text.size());
}

ReshardJournal journal_of(const json& fields) {
  ReshardJournal journal;
  journal.plan_hash = fields.at("plan_xxh3").get<std::uint64_t>();
  for (const json& source : fields.at("sources")) journal.sources.push_back(identity_of(source));
  journal.position = {fields.at("entry").get<std::uint64_t>(), fields.at("offset").get<std::uint64_t>()};
  journal.complete = fields.at("complete").get<bool>();
  return journal;
}

}  // namespace

std::optional<ReshardJournal> read_journal(const fs::path& file) {
  if (!is_present(file)) return std::nullopt;
  const std::string text = read_text(file, kMaxIndexBytes);
  try {
    json fields = parse_json_object<InvalidCheckpoint>(text, file.string(), kMaxIndexBytes);
    const json checksum = fields.at(kChecksum);
    fields.erase(kChecksum);
    ReshardJournal journal = journal_of(fields);
    // A number that is converted on the way in, as -1, is not what was written.
    if (checksum != checksum_of(fields) || fields != fields_of(journal)) throw InvalidInput("edited");
    return journal;
  } catch (const std::exception&) {
    throw InvalidCheckpoint(
        fmt::format("{}: is no journal of this version, or was changed since; allowed: {}", file.string(),
                    kJournalWayOut));
  }
}

void write_journal(const fs::path& file, const ReshardJournal& journal) {
  json document = fields_of(journal);
  document[kChecksum] = checksum_of(document);
  write_text_atomically(file, document.dump(1) + "\n");
}

void require_same_reshard(const ReshardJournal& found, const ReshardJournal& now, const fs::path& target) {
  for (std::size_t i = 0; i < now.sources.size() && found.sources.size() == now.sources.size(); ++i) {
    if (found.sources[i] == now.sources[i]) continue;
    throw InvalidInput(fmt::format(
        "{}: holds an unfinished reshard of another {}: size, time or header of the source changed since; {}",
        target.string(), quote(now.sources[i].name), kJournalWayOut));
  }
  if (found.plan_hash == now.plan_hash && found.sources.size() == now.sources.size()) return;
  throw InvalidInput(fmt::format(
      "{}: holds an unfinished reshard by another plan (layouts, source or --max-shard-size differ); {}",
      target.string(), kJournalWayOut));
}

}  // namespace shardcheck
