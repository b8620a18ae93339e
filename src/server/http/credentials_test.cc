#include "server/http/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http/model_card.h"
#include "server/http/response_head.h"
#include "server/http/uri.h"

namespace voxrt::server {
namespace {

using ::testing::ElementsAre;

RequestCredentials Bearer(const std::string& value) {
  return {.authorization = value, .x_api_key = {}, .api_key = {}, .subprotocols = {}};
}
RequestCredentials Protocols(const std::string& value) {
  return {.authorization = {}, .x_api_key = {}, .api_key = {}, .subprotocols = value};
}

TEST(KeyRing, WithoutKeysEverybodyPasses) {
  EXPECT_TRUE(KeyRing().Accepts(RequestCredentials{}));
  EXPECT_TRUE(KeyRing().Accepts(Bearer("Bearer whatever")));
}

TEST(KeyRing, EveryCarrierIsRead) {
  const KeyRing keys({"first", "second"});
  EXPECT_TRUE(keys.Accepts(Bearer("Bearer first")));
  EXPECT_TRUE(keys.Accepts(Bearer("bearer second")));
  EXPECT_TRUE(keys.Accepts({.authorization = {}, .x_api_key = "second", .api_key = {}, .subprotocols = {}}));
  EXPECT_TRUE(keys.Accepts({.authorization = {}, .x_api_key = {}, .api_key = "first", .subprotocols = {}}));
  EXPECT_TRUE(keys.Accepts(Protocols("realtime, openai-insecure-api-key.first, openai-beta.realtime-v1")));
  EXPECT_TRUE(keys.Accepts(Protocols("realtime, first")));
}

TEST(KeyRing, EverythingElseIsRefused) {
  const KeyRing keys({"first"});
  for (const char* value :
       {"", "Bearer", "Bearer ", "Bearer firs", "Bearer firstt", "Bearer firstfirst", "Basic first", "first"}) {
    EXPECT_FALSE(keys.Accepts(Bearer(value))) << value;
  }
  EXPECT_FALSE(keys.Accepts(Protocols("realtime")));
  EXPECT_FALSE(KeyRing({""}).Accepts(Bearer("Bearer ")));
}

TEST(Subprotocols, RealtimeIsEchoedAloneWhenOffered) {
  const SubprotocolChoice choice = ChooseSubprotocol("openai-insecure-api-key.k, realtime, openai-beta.realtime-v1");
  EXPECT_EQ(choice.echo, "realtime");
  EXPECT_TRUE(choice.beta && choice.realtime && choice.offered);
}

TEST(Subprotocols, ElseTheFirstThatIsNoCredential) {
  EXPECT_EQ(ChooseSubprotocol("rt_secret, chat, more").echo, "chat");
  EXPECT_EQ(ChooseSubprotocol("openai-organization.X, v1").echo, "v1");
  EXPECT_FALSE(ChooseSubprotocol("").offered);
}

TEST(Subprotocols, OnlyCredentialsCannotBeAnswered) {
  EXPECT_TRUE(ChooseSubprotocol("openai-insecure-api-key.k").only_credentials);
  EXPECT_FALSE(ChooseSubprotocol("").only_credentials);
}

TEST(Origin, NoneOwnAndListedPass) {
  EXPECT_TRUE(OriginAllowed("", "localhost:8000", {}));
  EXPECT_TRUE(OriginAllowed("http://localhost:8000", "LOCALHOST:8000", {}));
  EXPECT_FALSE(OriginAllowed("http://evil.example", "localhost:8000", {}));
  EXPECT_FALSE(OriginAllowed("null", "localhost:8000", {}));
  EXPECT_TRUE(OriginAllowed("https://app.example", "localhost", {"https://app.example"}));
  EXPECT_TRUE(OriginAllowed("https://any.example", "localhost", {"*"}));
}

TEST(Uri, PathAndQueryAreDecoded) {
  const std::optional<Uri> uri = ParseUri("/v1/models/mistralai%2FVoxtral?model=a%20b+c&intent=transcription&x");
  ASSERT_TRUE(uri.has_value());
  EXPECT_EQ(uri->path, "/v1/models/mistralai/Voxtral");
  EXPECT_EQ(*uri->Query("model"), "a b c");
  EXPECT_EQ(*uri->Query("intent"), "transcription");
  EXPECT_EQ(*uri->Query("x"), "");
  EXPECT_EQ(uri->Query("y"), nullptr);
}

TEST(Uri, BrokenTargetsAreRefused) {
  for (const char* target : {"", "x", "/%", "/%4", "/%zz", "/a?b=%", "/%00", "http://h/", "*"})
    EXPECT_FALSE(ParseUri(target).has_value()) << target;
}

TEST(ModelCard, HasWhatTheStrictClientsNeed) {
  const Json list = ModelList({"demo", "alias"}, "/models/demo", 7);
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"].size(), 2U);
  EXPECT_EQ(list["data"][1]["id"], "alias");
  EXPECT_EQ(list["data"][0]["type"], "base");
  EXPECT_EQ(list["data"][0]["capabilities"]["audio_transcription_realtime"], true);
}

TEST(ResponseHead, LengthOrChunks) {
  EXPECT_EQ(
      FormatHead(
          {.status = 200, .content_type = "a/b", .content_length = 3, .keep_alive = true, .headers = {{"X", "y"}}}),
      "HTTP/1.1 200 OK\r\nServer: voxrt\r\nContent-Type: a/b\r\nContent-Length: 3\r\nX: y\r\n\r\n");
  EXPECT_THAT(
      FormatHead(
          {.status = 503, .content_type = "", .content_length = std::nullopt, .keep_alive = false, .headers = {}}),
      ::testing::AllOf(::testing::HasSubstr("Transfer-Encoding: chunked"), ::testing::HasSubstr("Connection: close")));
  EXPECT_EQ(FormatChunk("0123456789abcdef!"), "11\r\n0123456789abcdef!\r\n");
  EXPECT_EQ(FormatChunk(""), "0\r\n\r\n");
}

}  // namespace
}  // namespace voxrt::server
