#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/protocol/test_util.h"

namespace voxrt::server::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RealtimeHints Intent() {
  RealtimeHints hints;
  hints.intent = true;
  return hints;
}
Json Ga(Json input) {
  return {{"type", "session.update"},
          {"session", {{"type", "transcription"}, {"audio", {{"input", std::move(input)}}}}}};
}
Json Beta(Json session) { return {{"type", "transcription_session.update"}, {"session", std::move(session)}}; }
const Json kCommit = {{"type", "input_audio_buffer.commit"}};
Json Audio(std::string_view bytes) { return Append("input_audio_buffer.append", bytes); }

void ExpectError(const Outbox& out, const char* code, const Json& param) {
  ASSERT_THAT(Types(out), ElementsAre("error"));
  const Json error = Messages(out)[0]["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["code"], code);
  EXPECT_EQ(error["param"], param);
  EXPECT_TRUE(error["message"].is_string());
  EXPECT_FALSE(out.close.has_value());
}

TEST(OpenAi, GaUpdateIsAnsweredWithTheEffectiveSession) {
  Client client(Intent());
  const Outbox out = client.Send(Ga({{"format", {{"type", "audio/pcm"}, {"rate", 24000}}},
                                     {"transcription", {{"model", "demo"}, {"language", "en"}, {"delay", "low"}}}}));
  EXPECT_EQ(Commands(out), "C24000@480 C24000@240");
  ASSERT_THAT(Types(out), ElementsAre("session.updated"));
  const Json session = Messages(out)[0]["session"];
  EXPECT_EQ(session["type"], "transcription");
  EXPECT_EQ(session["audio"]["input"]["format"], Json({{"type", "audio/pcm"}, {"rate", 24000}}));
  EXPECT_EQ(session["audio"]["input"]["transcription"],
            Json({{"model", "demo"}, {"language", "en"}, {"delay", "low"}, {"target_streaming_delay_ms", 240}}));
  EXPECT_TRUE(session["audio"]["input"]["turn_detection"].is_null());
  EXPECT_TRUE(Messages(out)[0]["event_id"].is_string());
}

TEST(OpenAi, LogProbabilitiesAreRefusedInBothForms) {
  const Json include = Json::array({"item.input_audio_transcription.logprobs"});
  Client client(Intent());
  ExpectError(client.Send({{"type", "session.update"}, {"session", {{"type", "transcription"}, {"include", include}}}}),
              "invalid_value", "session.include");
  Client beta(Intent());
  ExpectError(beta.Send(Beta({{"include", include}})), "invalid_value", "session.include");
  const Outbox none = client.Send({{"type", "session.update"}, {"session", {{"include", Json::array()}}}});
  EXPECT_THAT(Types(none), ElementsAre("session.updated"));
}

TEST(OpenAi, TheServerEndsAnOpenUtteranceLikeACommit) {
  Client client(Intent());
  client.Send(Ga({{"transcription", {{"model", "demo"}}}}));
  EXPECT_EQ(Commands(client.EndAudio()), "") << "an empty buffer is no error here";
  client.Send(Audio("abcd"));
  const Outbox out = client.EndAudio();
  EXPECT_EQ(Commands(out), "E");
  EXPECT_THAT(Types(out),
              ElementsAre("input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"));
  EXPECT_FALSE(client.protocol.idle());
  EXPECT_THAT(Types(client.Done(0)), ElementsAre("conversation.item.input_audio_transcription.completed"));
  EXPECT_TRUE(client.protocol.idle());
}

TEST(OpenAi, GoingAwayFailsTheItemsThatAreOwed) {
  Client client(Intent());
  client.Send(Audio("abcd"));
  client.Send(kCommit);
  const Outbox out = client.Fail(Fault::kGoingAway, "time over");
  EXPECT_THAT(Types(out), ElementsAre("conversation.item.input_audio_transcription.failed", "error"));
  EXPECT_EQ(Messages(out)[0]["error"]["code"], "going_away");
  EXPECT_EQ(Messages(out)[1]["error"]["code"], "going_away");
  EXPECT_EQ(out.close->code, 1001);
}

TEST(OpenAi, LiveOrderDeltasBeforeCommitCarryTheItemOfTheCommit) {
  Client client(Intent());
  client.Send(Ga({{"transcription", {{"model", "demo"}}}}));
  EXPECT_EQ(Commands(client.Send(Audio("abcd"))), "A4");
  const Json delta = Messages(client.Word(0, " Hi"))[0];
  EXPECT_EQ(delta["type"], "conversation.item.input_audio_transcription.delta");
  EXPECT_EQ(delta["content_index"], 0);
  const Outbox commit = client.Send(kCommit);
  EXPECT_EQ(Commands(commit), "E");
  EXPECT_THAT(Types(commit),
              ElementsAre("input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"));
  EXPECT_EQ(Messages(commit)[0]["item_id"], delta["item_id"]);
  EXPECT_TRUE(Messages(commit)[0]["previous_item_id"].is_null());
  EXPECT_EQ(Messages(commit)[1]["item"]["content"], Json::array({{{"type", "input_audio"}, {"transcript", nullptr}}}));
  client.Word(0, " there");
  const Json completed = Messages(client.Done(0, 20480))[0];
  EXPECT_EQ(completed["type"], "conversation.item.input_audio_transcription.completed");
  EXPECT_EQ(completed["transcript"], " Hi there");
  EXPECT_EQ(completed["item_id"], delta["item_id"]);
  EXPECT_EQ(completed["usage"], Json({{"type", "duration"}, {"seconds", 1.28}}));
  EXPECT_TRUE(client.protocol.idle());
}

TEST(OpenAi, ItemsAreChained) {
  Client client(Intent());
  client.Send(Audio("abcd"));
  const Json first = Messages(client.Send(kCommit))[0];
  client.Send(Audio("abcd"));
  const Json second = Messages(client.Send(kCommit))[0];
  EXPECT_EQ(second["previous_item_id"], first["item_id"]);
  EXPECT_NE(second["item_id"], first["item_id"]);
}

TEST(OpenAi, CommitWithoutUpdateUsesDefaults) {
  Client client(Intent());
  EXPECT_EQ(Commands(client.Send(Audio("abcd"))), "") << "held until the dialect is known";
  EXPECT_EQ(Commands(client.Send(kCommit)), "C24000@480 A4 E");
}

TEST(OpenAi, HeldAudioGetsTheFormatOfTheUpdate) {
  Client client(Intent());
  client.Send(Audio("abcd"));
  EXPECT_EQ(Commands(client.Send(Ga({{"format", {{"type", "audio/pcmu"}}}}))), "C24000@480 C8000@480 A4");
}

TEST(OpenAi, BetaUpdateIsFlatBothWays) {
  Client client(Intent());
  const Outbox out = client.Send(Beta({{"input_audio_format", "g711_alaw"},
                                       {"input_audio_transcription", {{"model", "demo"}}},
                                       {"turn_detection", nullptr}}));
  EXPECT_EQ(Commands(out), "C24000@480 C8000@480");
  ASSERT_THAT(Types(out), ElementsAre("transcription_session.updated"));
  const Json session = Messages(out)[0]["session"];
  EXPECT_EQ(session["input_audio_format"], "g711_alaw");
  EXPECT_FALSE(session.contains("audio"));
  client.Send(Audio("abcd"));
  EXPECT_THAT(Types(client.Send(kCommit)), ElementsAre("input_audio_buffer.committed", "conversation.item.created"));
}

TEST(OpenAi, FlatSessionUpdateIsAnsweredBySessionUpdatedWithAFlatSession) {
  Client client(Intent());
  const Outbox out = client.Send(
      {{"type", "session.update"}, {"session", {{"input_audio_format", "pcm16"}, {"modalities", {"text"}}}}});
  ASSERT_THAT(Types(out), ElementsAre("session.updated"));
  EXPECT_EQ(Messages(out)[0]["session"]["input_audio_format"], "pcm16");
}

TEST(OpenAi, NullClearsAndAbsentKeeps) {
  Client client(Intent());
  client.Send(Ga({{"turn_detection", {{"type", "server_vad"}, {"threshold", 0.7}}},
                  {"transcription", {{"model", "other/name"}, {"delay", "high"}}}}));
  Json input = Messages(client.Send(Ga(Json::object())))[0]["session"]["audio"]["input"];
  EXPECT_EQ(input["turn_detection"]["threshold"], 0.7);
  EXPECT_EQ(input["transcription"]["model"], "other/name");
  input = Messages(
      client.Send(Ga({{"turn_detection", nullptr}, {"transcription", nullptr}})))[0]["session"]["audio"]["input"];
  EXPECT_TRUE(input["turn_detection"].is_null());
  EXPECT_EQ(input["transcription"]["model"], "demo");
  EXPECT_EQ(input["transcription"]["delay"], "medium");
}

TEST(OpenAi, VoiceActivityDrivesTheItems) {
  Client client(Intent());
  const Outbox update = client.Send(
      Ga({{"turn_detection", {{"type", "semantic_vad"}, {"silence_duration_ms", 300}, {"create_response", true}}}}));
  EXPECT_TRUE(update.commands.back().options.vad.enabled);
  EXPECT_EQ(update.commands.back().options.vad.silence_duration_ms, 300);
  client.Send(Audio("abcd"));
  StreamEvent event;
  event.type = StreamEvent::Type::kSpeechStarted;
  event.audio_ms = 120;
  const Json started = Messages(client.Stream(event))[0];
  EXPECT_EQ(started["type"], "input_audio_buffer.speech_started");
  EXPECT_EQ(started["audio_start_ms"], 120);
  EXPECT_EQ(Messages(client.Word(0, " Hi"))[0]["item_id"], started["item_id"]);
  event.type = StreamEvent::Type::kSpeechStopped;
  event.audio_ms = 900;
  EXPECT_EQ(Messages(client.Stream(event))[0]["audio_end_ms"], 900);
  event.type = StreamEvent::Type::kBoundary;
  const Outbox boundary = client.Stream(event);
  EXPECT_THAT(Types(boundary),
              ElementsAre("input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"));
  EXPECT_EQ(Messages(boundary)[0]["item_id"], started["item_id"]);
  EXPECT_EQ(Messages(client.Done(0))[0]["transcript"], " Hi");
}

TEST(OpenAi, CommittedOnceWhenTheDriverReportsTheBoundaryToo) {
  Client client(Intent());
  client.Send(Audio("abcd"));
  client.Send(kCommit);
  StreamEvent event;
  event.type = StreamEvent::Type::kBoundary;
  EXPECT_THAT(client.Stream(event).frames, IsEmpty());
}

TEST(OpenAi, ClearAbandonsTheReservedItem) {
  Client client(Intent());
  client.Send(Ga(Json::object()));
  client.Send(Audio("abcd"));
  const Json before = Messages(client.Word(0, " no"))[0];
  const Outbox clear = client.Send({{"type", "input_audio_buffer.clear"}});
  EXPECT_EQ(Commands(clear), "X");
  EXPECT_THAT(Types(clear), ElementsAre("input_audio_buffer.cleared"));
  ExpectError(client.Send(kCommit), "input_audio_buffer_commit_empty", nullptr);
  client.Send(Audio("abcd"));
  const Json after = Messages(client.Word(0, " yes"))[0];
  EXPECT_NE(after["item_id"], before["item_id"]);
  client.Send(kCommit);
  EXPECT_EQ(Messages(client.Done(0))[0]["transcript"], " yes");
}

TEST(OpenAi, BadInputs) {
  Client client(Intent());
  client.Send(Ga(Json::object()));
  ExpectError(client.Text("nope"), "invalid_json", nullptr);
  ExpectError(client.Text("{}"), "invalid_event", "type");
  ExpectError(client.Send({{"type", "what"}}), "invalid_value", "type");
  ExpectError(client.Binary("x"), "invalid_event", nullptr);
  ExpectError(client.Send({{"type", "input_audio_buffer.append"}, {"audio", "@@"}}), "invalid_audio", "audio");
  ExpectError(client.Send(kCommit), "input_audio_buffer_commit_empty", nullptr);
  ExpectError(client.Send({{"type", "response.create"}}), "unsupported_event", "type");
  ExpectError(client.Send({{"type", "conversation.item.create"}}), "unsupported_event", "type");
  ExpectError(client.Send(Ga({{"transcription", {{"model", "nope"}}}})), "model_not_found",
              "session.audio.input.transcription.model");
  ExpectError(client.Send(Ga({{"format", {{"type", "audio/pcm"}, {"rate", 11025}}}})), "invalid_value",
              "session.audio.input.format.rate");
  ExpectError(client.Send(Ga({{"transcription", {{"delay", "never"}}}})), "invalid_value",
              "session.audio.input.transcription.delay");
  ExpectError(client.Send(Ga({{"transcription", {{"target_streaming_delay_ms", 90}}}})), "invalid_value",
              "session.audio.input.transcription.target_streaming_delay_ms");
  ExpectError(client.Send(Ga({{"turn_detection", {{"type", "server_vad"}, {"threshold", 3}}}})), "invalid_value",
              "session.audio.input.turn_detection.threshold");
  ExpectError(client.Send(Beta({{"input_audio_format", "mp3"}})), "invalid_value", "session.input_audio_format");
}

TEST(OpenAi, FormatCannotChangeAfterAudioButTheRestCan) {
  Client client(Intent());
  client.Send(Ga(Json::object()));
  client.Send(Audio("abcd"));
  ExpectError(client.Send(Ga({{"format", {{"type", "audio/pcmu"}}}})), "invalid_value", "session.audio.input.format");
  EXPECT_THAT(Types(client.Send(
                  Ga({{"format", {{"type", "audio/pcm"}, {"rate", 24000}}}, {"transcription", {{"prompt", "x"}}}}))),
              ElementsAre("session.updated"));
}

TEST(OpenAi, ErrorsCarryTheClientsEventId) {
  Client client(Intent());
  client.Send(Ga(Json::object()));
  EXPECT_EQ(Messages(client.Send({{"type", "what"}, {"event_id", "mine"}}))[0]["error"]["event_id"], "mine");
  EXPECT_TRUE(Messages(client.Send({{"type", "what"}}))[0]["error"]["event_id"].is_null());
}

TEST(OpenAi, EngineFaultFailsTheOpenItemsThenCloses) {
  Client client(Intent());
  client.Send(Audio("abcd"));
  client.Send(kCommit);
  const Outbox out = client.Fail(Fault::kEngine);
  EXPECT_THAT(Types(out), ElementsAre("conversation.item.input_audio_transcription.failed", "error"));
  EXPECT_EQ(Messages(out)[0]["error"]["type"], "server_error");
  EXPECT_EQ(out.close->code, 1011);
}

TEST(OpenAi, OtherFaults) {
  EXPECT_EQ(Messages(Client(Intent()).Fail(Fault::kIdle))[0]["error"]["code"], "session_expired");
  EXPECT_EQ(Messages(Client(Intent()).Fail(Fault::kLag))[0]["error"]["code"], "rate_limit_exceeded");
  EXPECT_EQ(Client(Intent()).Fail(Fault::kSlowReader).close->code, 1013);
}

TEST(OpenAi, RealtimeSessionsAreServedAsTranscription) {
  Client client(Intent());
  const Outbox out = client.Send(
      {{"type", "session.update"},
       {"session", {{"type", "realtime"}, {"audio", {{"input", {{"transcription", {{"model", "demo"}}}}}}}}}});
  EXPECT_EQ(Messages(out)[0]["session"]["type"], "transcription");
}

}  // namespace
}  // namespace voxrt::server::test
