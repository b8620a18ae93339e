#include "server/upload_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace voxrt::server {
namespace {

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

TEST(UploadFile, SmallAndLargeFilesAreReadBackFromTheStart) {
  for (const int pieces : {1, 5, 40}) {
    UploadFile file("/tmp");
    std::string expected;
    for (int i = 0; i < pieces; ++i) {
      const std::string piece(70000, static_cast<char>('a' + i % 26));
      ASSERT_TRUE(file.Write(piece).ok());
      expected += piece;
    }
    EXPECT_EQ(file.bytes(), static_cast<int64_t>(expected.size()));
    EXPECT_EQ(Slurp(file.path()), expected);
    EXPECT_EQ(Slurp(file.path()), expected) << "a second reader begins at the start as well";
  }
}

TEST(UploadFile, ADiskThatCannotBeWrittenIsAnError) {
  UploadFile file("/nonexistent/voxrt");
  ASSERT_TRUE(file.Write("small").ok());
  EXPECT_EQ(file.Write(std::string(2 << 20, 'x')).code(), StatusCode::kIo);
}

TEST(CheckTempDir, AFolderThatTakesNoFilesIsNamed) {
  EXPECT_TRUE(CheckTempDir(::testing::TempDir()).ok());
  const Status status = CheckTempDir("/proc");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("/proc"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace voxrt::server
