#include "hub/part_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace voxrt::hub {
namespace {

namespace fs = std::filesystem;

const PartIdentity kIdentity{"abc", 25, 10};

class PartFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("voxrt_part_" + std::to_string(::getpid()));
    fs::create_directories(directory_);
    path_ = (directory_ / "file").string();
  }
  void TearDown() override { fs::remove_all(directory_); }
  static std::vector<std::byte> Bytes(size_t count, int value) { return {count, static_cast<std::byte>(value)}; }

  fs::path directory_;
  std::string path_;
};

TEST_F(PartFileTest, StateSurvivesReopening) {
  {
    auto part = PartFile::Open(path_, kIdentity);
    ASSERT_TRUE(part.ok());
    EXPECT_EQ((*part)->segments(), 3);
    EXPECT_EQ((*part)->SegmentBytes(2), 5);
    ASSERT_TRUE((*part)->Append(1, Bytes(4, 7)).ok());
    ASSERT_TRUE((*part)->SaveState().ok());
    ASSERT_TRUE((*part)->Append(1, Bytes(2, 9)).ok());  // not in the state: fetched again
  }
  auto part = PartFile::Open(path_, kIdentity);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ((*part)->Present(1), 4);
  EXPECT_EQ((*part)->PresentInAll(), 4);
}

TEST_F(PartFileTest, StateOfOtherContentsOrDamagedIsDropped) {
  {
    auto part = PartFile::Open(path_, kIdentity);
    ASSERT_TRUE((*part)->Append(0, Bytes(4, 7)).ok());
    ASSERT_TRUE((*part)->SaveState().ok());
  }
  EXPECT_EQ((*PartFile::Open(path_, {"other", 25, 10}))->PresentInAll(), 0);
  std::ofstream(path_ + ".part.json") << "{\"version\":1,";
  EXPECT_EQ((*PartFile::Open(path_, kIdentity))->PresentInAll(), 0);
}

TEST_F(PartFileTest, CommitGivesTheFileItsNameAndRemovesTheState) {
  auto part = PartFile::Open(path_, {"abc", 3, 10});
  ASSERT_TRUE((*part)->Append(0, Bytes(3, 'x')).ok());
  ASSERT_TRUE((*part)->SaveState().ok());
  ASSERT_TRUE((*part)->Sync().ok());
  ASSERT_TRUE((*part)->Commit().ok());
  std::ifstream in(path_);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), "xxx");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST(PartStateTest, RoundTripsAndRefusesNonsense) {
  const std::vector<int64_t> present = {10, 3, 5};
  const std::string text = WritePartState(kIdentity, present);
  auto back = ParsePartState(text, kIdentity);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, present);
  EXPECT_FALSE(ParsePartState(WritePartState(kIdentity, std::vector<int64_t>{10, 3, 6}), kIdentity).ok());
  EXPECT_FALSE(ParsePartState(WritePartState(kIdentity, std::vector<int64_t>{10, -1, 5}), kIdentity).ok());
  EXPECT_FALSE(ParsePartState(WritePartState(kIdentity, std::vector<int64_t>{10, 3}), kIdentity).ok());
  EXPECT_FALSE(ParsePartState(text, {"abd", 25, 10}).ok());
  EXPECT_FALSE(ParsePartState("", kIdentity).ok());
  const PartIdentity nameless{"", 25, 10};
  EXPECT_FALSE(ParsePartState(WritePartState(nameless, present), nameless).ok())
      << "without a hash nothing proves that it is the same file";
}

}  // namespace
}  // namespace voxrt::hub
