#include "checkpoint/reshard_workspace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <system_error>

#include "checkpoint/carried_files.h"
#include "checkpoint/system_call.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = ".shardcheck-reshard";
constexpr const char* kJournal = "journal.json";

/// Names in a folder, sorted.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) fail_io(folder, "list the folder", error);
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void refuse_taken(const fs::path& file) {
  throw IoError(
      fmt::format("{}: the name is taken; remove what has it and repeat the command: everything else is done",
                  file.string()));
}

void put_in_place(const fs::path& from, const fs::path& to) {
  if (is_present(to)) refuse_taken(to);
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail_io(to, "name the file", error);
}

/// Writes the record unless a run before has.
void write_record(const fs::path& file, const std::string& text) {
  if (!is_present(file)) return write_text_atomically(file, text);
  if (read_text(file, text.size()) != text) refuse_taken(file);
}

}  // namespace

ReshardWorkspace::ReshardWorkspace(fs::path target, const TargetFiles& files, ReshardJournal journal,
                                   const ReshardOptions& options)
    : target_(std::move(target)),
      folder_(target_ / kFolder),
      files_(files),
      journal_(std::move(journal)),
      options_(options) {
  if (is_present(target_)) require_folder(target_);
  const bool has_workspace = is_present(folder_);
  if (is_present(target_) && !has_workspace) require_nothing_else();
  made_target_ = !is_present(target_);
  create_folder(folder_);
  lock_ = Descriptor(retry([&] { return ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (lock_.get() < 0) fail_io(folder_, "open the folder");
  if (retry([&] { return ::flock(lock_.get(), LOCK_EX | LOCK_NB); }) != 0) {
    throw IoError(fmt::format("{}: another reshard is writing here", target_.string()));
  }
}

ReshardWorkspace::~ReshardWorkspace() {
  if (storing_.valid()) storing_.wait();
  if (begun_) return;
  // Nothing here can be continued.
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  if (made_target_) fs::remove(target_, ignored);
}

fs::path ReshardWorkspace::journal_file() const { return folder_ / kJournal; }

void ReshardWorkspace::require_nothing_else() const {
  std::vector<std::string> names = names_in(target_);
  std::erase(names, kFolder);
  if (names.empty()) return;
  throw InvalidInput(
      fmt::format("{}: holds {}; allowed: a folder that is new or empty, or that an unfinished "
                  "reshard left",
                  target_.string(), quote_some(names)));
}

void ReshardWorkspace::begin(const fs::path& source) {
  begun_ = true;  // until it is known to be ours to drop
  std::optional<ReshardJournal> found;
  if (!options_.restart) found = read_journal(journal_file());
  if (!found || !found->complete) require_nothing_else();
  if (found) {
    require_same_reshard(*found, journal_, target_);
    journal_ = *found;
    return;
  }
  begun_ = false;
  for (const std::string& name : names_in(folder_)) remove_file(folder_ / name);
  carry_files(source, folder_);
  create_files();
  sync_folder(folder_);
  write_journal(journal_file(), journal_);
  begun_ = true;
}

void ReshardWorkspace::create_files() {
  for (std::size_t i = 0; i < files_.files().size(); ++i) {
    PositionalFile file(folder_ / files_.files()[i].name, true);
    file.reserve(files_.files()[i].size_bytes);
    const std::string start = files_.start_of(i);
    file.write(0, std::as_bytes(std::span(start)));
    file.sync();
  }
}

std::uint64_t ReshardWorkspace::tensor_bytes(const Layout& layout) const {
  std::uint64_t bytes = 0;
  for (std::size_t e = 0; e < layout.entries.size(); ++e) {
    for (const int rank : layout.entries[e].placed.holders()) bytes += files_.tensor_bytes(e, rank);
  }
  return bytes;
}

std::uint64_t ReshardWorkspace::bytes_done(const Layout& layout) const {
  if (journal_.complete) return tensor_bytes(layout);
  std::uint64_t bytes = 0;
  for (std::size_t e = 0; e < layout.entries.size() && e <= journal_.position.entry; ++e) {
    for (const int rank : layout.entries[e].placed.holders()) {
      const std::uint64_t all = files_.tensor_bytes(e, rank);
      bytes += e < journal_.position.entry ? all : std::min(all, journal_.position.offset);
    }
  }
  return bytes;
}

void ReshardWorkspace::wait() {
  if (storing_.valid()) storing_.get();
}

void ReshardWorkspace::store(std::vector<std::uint32_t> written) {
  wait();
  storing_ = std::async(std::launch::async, [this, written = std::move(written), journal = journal_] {
    for (const std::uint32_t file : written) PositionalFile(folder_ / files_.files()[file].name).sync();
    write_journal(journal_file(), journal);
  });
}

void ReshardWorkspace::advance(const ReshardPosition& position, std::uint64_t written, OpenFiles& files,
                               const Layout& layout) {
  if (all_bytes_ == 0) {
    all_bytes_ = tensor_bytes(layout);
    done_bytes_ = bytes_done(layout);
  }
  journal_.position = position;
  since_stored_ += written;
  done_bytes_ += written;
  report(layout);
  if (since_stored_ < options_.checkpoint_bytes) return;
  since_stored_ = 0;
  store(files.take_written());
}

void ReshardWorkspace::report(const Layout& layout) {
  if (!options_.progress) return;
  const auto entry = std::min<std::size_t>(journal_.position.entry, layout.entries.size() - 1);
  options_.progress(
      {ProgressEvent::Kind::step, fmt::format("writing {}", layout.entries[entry].name),
       static_cast<double>(done_bytes_) / static_cast<double>(std::max<std::uint64_t>(all_bytes_, 1))});
}

void ReshardWorkspace::complete(OpenFiles& files, const Layout& layout) {
  journal_.position = {layout.entries.size(), 0};
  journal_.complete = true;
  store(files.take_written());
  wait();
}

void ReshardWorkspace::publish() {
  const TargetFiles::Record record = files_.record();
  std::vector<std::string> names = carried_files_in(folder_);
  for (const TargetFiles::File& file : files_.files()) names.push_back(file.name);
  for (const std::string& name : names) {
    // One that has its name already got it from a run before.
    if (is_present(folder_ / name)) put_in_place(folder_ / name, target_ / name);
  }
  sync_folder(target_);
  if (!record.name.empty()) write_record(target_ / record.name, record.text);
  remove_file(journal_file());
  std::error_code error;
  fs::remove(folder_, error);
  if (error) fail_io(folder_, "remove the folder", error);
}

}  // namespace shardcheck
