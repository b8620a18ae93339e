#include "support/root.h"

#include <gtest/gtest.h>

namespace voxrt::test {
namespace {

class RootTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* set = std::getenv("VOXRT_TEST_ROOT")) before_ = set;
  }
  void TearDown() override {
    before_.empty() ? unsetenv("VOXRT_TEST_ROOT") : setenv("VOXRT_TEST_ROOT", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST_F(RootTest, IsTheCompiledSourceUnlessTheEnvironmentNamesAnother) {
  for (const bool empty : {false, true}) {
    empty ? setenv("VOXRT_TEST_ROOT", "", 1) : unsetenv("VOXRT_TEST_ROOT");
    EXPECT_EQ(Root(), VOXRT_SOURCE_DIR);
  }
  setenv("VOXRT_TEST_ROOT", "/carried/here", 1);
  EXPECT_EQ(Root(), "/carried/here");
}

}  // namespace
}  // namespace voxrt::test
