#include "shardcheck/text/hex.h"

#include <gtest/gtest.h>

#include "shardcheck/text/errors.h"

namespace shardcheck {
namespace {

TEST(Hex, ReadsWhatItPrintsAndComments) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  EXPECT_EQ(bytes_of_hex(hex_of_bytes(bytes), "test"), bytes);
  EXPECT_EQ(bytes_of_hex("# length\n08 0A  # eight, ten\n\nff\n", "test"), std::string("\x08\x0a\xff"));
  for (const char* wrong : {"0", "0g", "0 1", "00 1\n1"})
    EXPECT_THROW(bytes_of_hex(wrong, "test"), InvalidInput) << wrong;
}

}  // namespace
}  // namespace shardcheck
