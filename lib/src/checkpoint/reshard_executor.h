// Carries a plan out from mapped files into files, tensor by tensor, in bounded memory. Private to the
// checkpoint folder.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "checkpoint/page_window.h"
#include "checkpoint/reshard_journal.h"
#include "checkpoint/source_folder.h"
#include "checkpoint/target_files.h"
#include "reshard/copy_parts.h"
#include "shardcheck/reshard/plan.h"

namespace shardcheck {

class ReshardExecutor {
 public:
  struct Input {
    const Layout& source_layout;
    const Layout& target_layout;
    const SourceFolder& source;
    const TargetFiles& targets;
    const std::vector<Copy>& copies;  // by target entry, then rank
    std::uint64_t buffer_bytes = 0;
  };
  ReshardExecutor(const Input& input, OpenFiles& files);

  /// Writes everything after `from`. Calls `done` whenever every rank has got as far as a position, with the
  /// bytes written since the last call.
  void run(ReshardPosition from, const std::function<void(const ReshardPosition&, std::uint64_t)>& done);

 private:
  std::uint64_t step_of(std::size_t entry) const;
  void write_chunk(std::size_t entry, int rank, std::uint64_t begin, std::uint64_t end);
  void copy_into_buffer(const Copy& part, const Box& box, std::int64_t first_element);

  Input in_;
  OpenFiles& files_;
  PageWindow window_{kWindowBytes};
  std::vector<std::byte> buffer_;
};

}  // namespace shardcheck
