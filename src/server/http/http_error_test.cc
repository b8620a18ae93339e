#include "server/http/http_error.h"

#include <gtest/gtest.h>

namespace voxrt::server {
namespace {

TEST(HttpError, AdviceAboutFlagsIsNotForClients) {
  EXPECT_EQ(WithoutFlags("the upload: found text, expected an audio file; give an audio file, or --format, --rate and "
                         "--channels for raw PCM"),
            "the upload: found text, expected an audio file");
  EXPECT_EQ(WithoutFlags("no room; use a smaller --kv-type; try later"), "no room; try later");
  EXPECT_EQ(WithoutFlags("cut off; 3 of 5 s were read"), "cut off; 3 of 5 s were read");
  EXPECT_EQ(WithoutFlags("--max-lag"), "");
  EXPECT_EQ(WithoutFlags(""), "");
}

TEST(HttpError, TheTypeFollowsTheStatus) {
  EXPECT_EQ((HttpError{503, "m", "", "full"}.Body()),
            R"({"error":{"message":"m","type":"server_error","param":null,"code":"full"}})");
  EXPECT_STREQ(BadRequest("m", "file").type(), "invalid_request_error");
}

}  // namespace
}  // namespace voxrt::server
