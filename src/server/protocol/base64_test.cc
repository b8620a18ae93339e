#include "server/protocol/base64.h"

#include <gtest/gtest.h>

namespace voxrt::server {
namespace {

TEST(Base64, EveryLengthAndByteSurvivesARoundTrip) {
  std::string bytes;
  for (int i = 0; i < 600; ++i) {
    EXPECT_EQ(DecodeBase64(EncodeBase64(bytes)), bytes) << i;
    bytes += static_cast<char>(i * 37);
  }
}

TEST(Base64, KnownVectors) {
  EXPECT_EQ(EncodeBase64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(EncodeBase64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(EncodeBase64("foob"), "Zm9vYg==");
  EXPECT_EQ(DecodeBase64(""), "");
}

TEST(Base64, WhatIsNotStrictIsRefused) {
  for (const char* text : {"@@@@", "Zm9vYg=", "Zm9vYg", "Zm9v\nYg==", "Zm9vYg==\n", "Zm-_", "====", "Zg=a",
                           "=Zg=", "Zg==Zg==", "Z", "Zm9vYg= ="}) {
    EXPECT_EQ(DecodeBase64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace voxrt::server
