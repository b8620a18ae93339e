#include "server/protocol/realtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/protocol/test_util.h"

namespace voxrt::server::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Realtime, TheGreetingHasWhatEveryClientLooksFor) {
  Client client;
  const Json created = Messages(client.opening)[0];
  EXPECT_EQ(created["type"], "session.created");
  EXPECT_EQ(created["id"], "sess-0a");
  EXPECT_EQ(created["created"], 1790000000);
  EXPECT_EQ(created["session"]["request_id"], "sess-0a");
  EXPECT_EQ(created["session"]["model"], "demo");
  EXPECT_EQ(created["session"]["audio_format"], Json({{"encoding", "pcm_s16le"}, {"sample_rate", 16000}}));
  EXPECT_EQ(created["session"]["target_streaming_delay_ms"], 480);
  EXPECT_EQ(created["session"]["audio"]["input"]["format"]["rate"], 24000);
  EXPECT_FALSE(created["session"].contains("expires_at"));
  EXPECT_EQ(client.opening.frames.size(), 1U);
}

TEST(Realtime, ExpiryIsAnnouncedWhenConfigured) {
  SessionConfig config = Config();
  config.expires_at_unix_s = 1790000060;
  EXPECT_EQ(Messages(Client({}, config).opening)[0]["session"]["expires_at"], 1790000060);
}

TEST(Realtime, BindingFollowsTheFirstTellingEvent) {
  struct Row {
    Json event;
    bool leaning;
    const char* dialect;
  };
  const Json ga = {{"type", "session.update"}, {"session", Json::object()}};
  const Json flat = {{"type", "session.update"}, {"session", {{"input_audio_format", "pcm16"}}}};
  const Json vllm = {{"type", "session.update"}, {"model", "demo"}};
  const Json commit = {{"type", "input_audio_buffer.commit"}};
  const Json final = {{"type", "input_audio_buffer.commit"}, {"final", false}};
  const Json beta = {{"type", "transcription_session.update"}, {"session", Json::object()}};
  for (const Row& row :
       {Row{ga, false, "openai"}, Row{flat, false, "openai-beta"}, Row{vllm, true, "vllm"}, Row{final, true, "vllm"},
        Row{commit, true, "openai"}, Row{commit, false, "vllm"}, Row{beta, false, "openai-beta"}}) {
    RealtimeHints hints;
    hints.intent = row.leaning;
    Client client(hints);
    client.Send(row.event);
    EXPECT_TRUE(client.protocol.bound()) << row.event;
    EXPECT_STREQ(client.protocol.dialect(), row.dialect) << row.event;
  }
}

TEST(Realtime, EveryHintLeansToOpenAi) {
  RealtimeHints model, beta, subprotocol;
  model.model = "demo";
  beta.beta_header = true;
  subprotocol.realtime_subprotocol = true;
  for (const RealtimeHints& hints : {model, beta, subprotocol}) {
    Client client(hints);
    EXPECT_TRUE(Messages(client.Text("{"))[0]["error"].is_object());
  }
  EXPECT_TRUE(Messages(Client().Text("{"))[0]["error"].is_string());
}

TEST(Realtime, ErrorsBeforeBindingDoNotBind) {
  Client client;
  client.Text("{");
  client.Send({{"type", "session.update"}});
  client.Send({{"type", "what"}});
  EXPECT_FALSE(client.protocol.bound());
  client.Send({{"type", "session.update"}, {"session", Json::object()}});
  EXPECT_STREQ(client.protocol.dialect(), "openai");
}

TEST(Realtime, HeldAudioIsBoundedAndBadAudioIsAnsweredAtOnce) {
  SessionConfig config = Config();
  config.max_unbound_bytes = 8;
  Client client({}, config);
  EXPECT_THAT(client.Send(Append("input_audio_buffer.append", "12345678")).frames, IsEmpty());
  EXPECT_EQ(Messages(client.Send(Append("input_audio_buffer.append", "9")))[0]["code"], "buffer_full");
  EXPECT_EQ(Messages(client.Send({{"type", "input_audio_buffer.append"}, {"audio", "x"}}))[0]["code"], "invalid_audio");
  EXPECT_EQ(Commands(client.Send({{"type", "session.update"}, {"model", "demo"}})), "C16000@480 A8");
}

TEST(Realtime, AudioOfAnUnknownDialectIsEndedWhereACommitWouldDo) {
  RealtimeHints intent;
  intent.intent = true;
  Client openai(intent);
  openai.Send(Append("input_audio_buffer.append", "1234"));
  EXPECT_EQ(Commands(openai.EndAudio()), "C24000@480 A4 E");
  Client vllm;
  EXPECT_THAT(vllm.EndAudio().frames, IsEmpty()) << "nothing was sent";
  vllm.Send(Append("input_audio_buffer.append", "1234"));
  const Outbox out = vllm.EndAudio();
  EXPECT_EQ(Messages(out)[0]["error"], "time over");
  EXPECT_EQ(out.close->code, 1001);
}

TEST(Realtime, DeepNestingIsInvalidJson) {
  Client client;
  EXPECT_EQ(Messages(client.Text(std::string(100, '[')))[0]["code"], "invalid_json");
  EXPECT_EQ(Messages(client.Text(R"({"type":")" + std::string(10000, '[') + R"("})"))[0]["code"], "unknown_event")
      << "brackets in a string are no depth";
}

TEST(Realtime, AHostileNumberOfMembersIsInvalidJson) {
  std::string many = R"({"type":"session.update","model":"demo")";
  for (int i = 0; i < 1000000; ++i) many += ",\"" + std::to_string(i) + "\":0";
  EXPECT_EQ(Messages(Client().Text(many + "}"))[0]["code"], "invalid_json");
  Json few = {{"type", "session.update"}, {"model", "demo"}, {"note", std::string(10000, ':')}};
  for (int i = 0; i < 500; ++i) few[std::to_string(i)] = 0;
  EXPECT_THAT(Client().Send(few).frames, IsEmpty());
}

TEST(Realtime, WhatIsQuotedInAMessageIsShortAndValid) {
  const std::string long_type(1 << 20, 'x');
  for (const bool openai : {false, true}) {
    RealtimeHints hints;
    hints.intent = openai;
    const Outbox out = Client(hints).Send({{"type", long_type}});
    EXPECT_LT(Serialize(out.frames[0]).size(), 600U);
  }
  EXPECT_EQ(Excerpt("abc"), "abc");
  EXPECT_EQ(Excerpt("a\xFF"
                    "b"),
            "a?b");
  EXPECT_EQ(Excerpt("\xC3\xA4\xC3\xA4\xC3\xA4", 5), "\xC3\xA4...");
  EXPECT_EQ(Excerpt(std::string(200, 'y')).size(), 200U);
  EXPECT_EQ(Excerpt(std::string(201, 'y')), std::string(197, 'y') + "...");
}

TEST(Realtime, DeltasAreEscapedWhenSerialized) {
  Frame frame{.text = R"({"d":")", .delta = "a\"b\n\xC3\xA9", .suffix = R"("})", .merge_key = "k"};
  EXPECT_EQ(Json::parse(Serialize(frame))["d"], "a\"b\n\xC3\xA9");
}

}  // namespace
}  // namespace voxrt::server::test
