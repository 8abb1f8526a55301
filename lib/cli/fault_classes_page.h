// docs/fault-classes.md: the classes of public bug reports and the faults that stand for them.
#pragma once

#include <string>

namespace shardcheck {

/// The page as Markdown. Where a fault cannot act and where it changes nothing is what it answers on random
/// cases, the same ones every time.
std::string fault_classes_page(const std::string& command);

}  // namespace shardcheck
