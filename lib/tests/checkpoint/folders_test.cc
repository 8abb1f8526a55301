#include "shardcheck/checkpoint/folders.h"

#include <gtest/gtest.h>

#include <fstream>

#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

TEST(Folders, UnderAFolderAreSortedAndAFileIsItself) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "b");
  for (const char* name : {"c", "b/a", "a"}) std::ofstream(folder.path() / name) << name;
  EXPECT_EQ(files_under(folder.path()),
            (std::vector<fs::path>{folder.path() / "a", folder.path() / "b/a", folder.path() / "c"}));
  EXPECT_EQ(files_under(folder.path() / "c"), std::vector<fs::path>{folder.path() / "c"});
  EXPECT_THROW(files_under(folder.path() / "absent"), IoError);
}

TEST(Folders, ATemporaryFolderGoesAwayWithWhatIsInIt) {
  fs::path path;
  {
    const TemporaryFolder folder, other;
    path = folder.path();
    EXPECT_NE(path, other.path());
    std::ofstream(path / "file") << "text";
    EXPECT_TRUE(fs::exists(path / "file"));
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_THROW(TemporaryFolder("/dev/null"), IoError);
}

}  // namespace
}  // namespace shardcheck
