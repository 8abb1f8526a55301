// The logical elements of a mapped folder, every copy of them, in parts that can be compared. Private to the
// checkpoint folder.
#pragma once

#include "checkpoint/source_folder.h"
#include "shardcheck/checkpoint/reshard_folder.h"

namespace shardcheck {

/// The digest and every disagreement between copies.
FolderDigest digest_of(const SourceFolder& folder, const Layout& layout, const ProgressSink& progress);

/// Throws DivergentCopies with the first disagreement between replicas or tied copies; reads only what is
/// held more than once.
void require_agreement(const SourceFolder& folder, const Layout& layout, const ProgressSink& progress);

}  // namespace shardcheck
