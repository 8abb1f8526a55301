// A data file compiled into the library (layout tables, recorded floors).
#pragma once

#include <string_view>

namespace shardcheck {

struct EmbeddedFile {
  std::string_view name;  // file name without folder
  std::string_view text;
};

}  // namespace shardcheck
