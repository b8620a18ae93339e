#include "base/base64.h"

#include <gtest/gtest.h>

namespace voxrt::base {
namespace {

TEST(Base64, EncodesTheVectorsOfTheStandard) {
  EXPECT_EQ(EncodeBase64(""), "");
  EXPECT_EQ(EncodeBase64("f"), "Zg==");
  EXPECT_EQ(EncodeBase64("fo"), "Zm8=");
  EXPECT_EQ(EncodeBase64("foo"), "Zm9v");
  EXPECT_EQ(EncodeBase64("foobar"), "Zm9vYmFy");
}

TEST(Base64, DecodesWhatItEncodes) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(DecodeBase64(EncodeBase64(bytes)), bytes);
    bytes.push_back(static_cast<char>(i * 37));
  }
}

TEST(Base64, RefusesEverythingElse) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zg==Zg==", "====", "=g==", "Z===", "@@@@", "Zm9-", "Zm9_", "Zm\n9",
                           "Zh==", "Zm9=", "Z=g="}) {
    EXPECT_FALSE(DecodeBase64(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace voxrt::base
