#include "checkpoint/reshard_workspace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
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

bool is_plain_file(const fs::path& file) {
  std::error_code ignored;
  return fs::symlink_status(file, ignored).type() == fs::file_type::regular;
}

/// Whether a reshard may have written a file of this name in its workspace.
bool is_own_name(const std::string& name, const std::vector<std::string>& carried) {
  return name == kJournal || is_target_file_name(name) || is_temporary_name(name) ||
         std::find(carried.begin(), carried.end(), name) != carried.end();
}

/// Throws what `create_folder` would throw about the folder above.
void require_room_for(const fs::path& folder) {
  fs::path above = fs::absolute(folder).parent_path();
  while (!is_present(above) && above.has_relative_path()) above = above.parent_path();
  std::error_code ignored;
  if (!fs::is_directory(above, ignored))
    fail_io(folder, "create the folder", std::make_error_code(std::errc::not_a_directory));
  if (::access(above.c_str(), W_OK | X_OK) != 0) fail_io(folder, "create the folder");
}

/// One process at a time; the lock goes with the descriptor.
Descriptor lock(const fs::path& workspace, const fs::path& target) {
  Descriptor descriptor(
      retry([&] { return ::open(workspace.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  if (descriptor.get() < 0) fail_io(workspace, "open the folder");
  if (retry([&] { return ::flock(descriptor.get(), LOCK_EX | LOCK_NB); }) != 0) {
    throw IoError(fmt::format("{}: another reshard is writing here", target.string()));
  }
  return descriptor;
}

}  // namespace

fs::path ReshardTarget::workspace() const { return path / kFolder; }
fs::path ReshardTarget::journal_file() const { return workspace() / kJournal; }

void ReshardTarget::require_place() const {
  if (!is_present(path)) return;
  require_folder(path);
  if (!is_present(workspace())) return require_nothing_else();
  std::error_code ignored;
  if (fs::symlink_status(workspace(), ignored).type() == fs::file_type::directory) return;
  throw InvalidInput(fmt::format("{}: is a link or no folder; allowed: the folder of an unfinished reshard",
                                 workspace().string()));
}

void ReshardTarget::require_nothing_else() const {
  std::vector<std::string> names = names_in(path);
  std::erase(names, kFolder);
  if (names.empty()) return;
  throw InvalidInput(
      fmt::format("{}: holds {}; allowed: a folder that is new or empty, or that an unfinished "
                  "reshard left",
                  path.string(), quote_some(names)));
}

/// Before anything is removed or gets its final name.
void ReshardTarget::require_own_files() const {
  std::vector<std::string> foreign;
  for (const std::string& name : names_in(workspace())) {
    if (!is_own_name(name, carried) || !is_plain_file(workspace() / name)) foreign.push_back(name);
  }
  if (foreign.empty()) return;
  throw InvalidInput(fmt::format("{}: holds {}, which this reshard did not write; take it away first",
                                 workspace().string(), quote_some(foreign)));
}

bool ReshardTarget::is_whole(const fs::path& file, std::size_t index) const {
  const std::string start = files.start_of(index);
  std::error_code error;
  if (!is_plain_file(file) || fs::file_size(file, error) != files.files()[index].size_bytes || error)
    return false;
  std::string stored(start.size(), '\0');
  std::ifstream stream(file, std::ios::binary);
  return stream.read(stored.data(), std::ssize(stored)) && stored == start;
}

/// The files that the journal speaks of are there, and its position is one of theirs.
void ReshardTarget::require_intact(const ReshardJournal& found) const {
  const auto refuse = [&](const fs::path& file, std::string_view what) {
    throw InvalidCheckpoint(fmt::format("{}: {}; {}", file.string(), what, kJournalWayOut));
  };
  const auto [entry, offset] = found.position;
  const std::uint64_t end = entry < files.entry_count() ? files.longest_tensor_bytes(entry) : 0;
  if (entry > files.entry_count() || offset > end || (found.complete && entry != files.entry_count()))
    refuse(journal_file(), "its position is none of this reshard");
  std::vector<std::string> names = names_in(workspace());
  for (std::size_t i = 0; i < files.files().size(); ++i) {
    const std::string& name = files.files()[i].name;
    std::erase(names, name);
    // A run that was killed while it gave names has given some.
    const bool named = found.complete && !is_present(workspace() / name);
    const fs::path file = (named ? path : workspace()) / name;
    if (!is_whole(file, i)) refuse(file, "is not as the unfinished reshard left it");
  }
  const auto strange = std::find_if(names.begin(), names.end(), is_target_file_name);
  if (strange != names.end()) refuse(workspace() / *strange, "is no file of this reshard");
}

std::optional<ReshardJournal> ReshardTarget::found() const {
  require_own_files();
  std::optional<ReshardJournal> found;
  if (!restart) found = read_journal(journal_file());
  if (!found || !found->complete) require_nothing_else();
  if (found) {
    require_same_reshard(*found, journal, path);
    require_intact(*found);
  }
  return found;
}

void ReshardTarget::require_usable() const {
  require_place();
  if (!is_present(workspace())) return require_room_for(workspace());
  const Descriptor held = lock(workspace(), path);
  found();
}

ReshardWorkspace::ReshardWorkspace(const ReshardTarget& target, const ReshardOptions& options)
    : target_(target),
      folder_(target.workspace()),
      files_(target.files),
      journal_(target.journal),
      options_(options) {
  target_.require_place();
  made_target_ = !is_present(target_.path);
  create_folder(folder_);
  lock_ = lock(folder_, target_.path);
}

ReshardWorkspace::~ReshardWorkspace() {
  if (storing_.valid()) storing_.wait();
  if (begun_) return;
  // Nothing here can be continued. Folders go only when they are empty.
  std::error_code ignored;
  for (const std::string& name : target_.carried) fs::remove(folder_ / name, ignored);
  for (const TargetFiles::File& file : files_.files()) fs::remove(folder_ / file.name, ignored);
  fs::remove(target_.journal_file(), ignored);
  fs::remove(folder_, ignored);
  if (made_target_) fs::remove(target_.path, ignored);
}

void ReshardWorkspace::begin(const fs::path& source) {
  begun_ = true;  // until it is known to be ours to drop
  if (auto found = target_.found()) {
    journal_ = *std::move(found);
    return;
  }
  begun_ = false;
  for (const std::string& name : names_in(folder_)) {
    if (is_own_name(name, target_.carried)) remove_file(folder_ / name);
  }
  carry_files(source, target_.carried, folder_);
  create_files();
  sync_folder(folder_);
  write_journal(target_.journal_file(), journal_);
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
    write_journal(target_.journal_file(), journal);
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
  std::vector<std::string> names = target_.carried;
  for (const TargetFiles::File& file : files_.files()) names.push_back(file.name);
  for (const std::string& name : names) {
    // One that has its name already got it from a run before.
    if (is_present(folder_ / name)) put_in_place(folder_ / name, target_.path / name);
  }
  sync_folder(target_.path);
  if (!record.name.empty()) write_record(target_.path / record.name, record.text);
  remove_file(target_.journal_file());
  for (const std::string& name : names_in(folder_)) {
    if (is_temporary_name(name)) remove_file(folder_ / name);
  }
  std::error_code error;
  fs::remove(folder_, error);
  if (error) fail_io(folder_, "remove the folder", error);
}

}  // namespace shardcheck
