#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/protocol/test_util.h"

namespace voxrt::server::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Json kFlush = {{"type", "input_audio.flush"}};
const Json kEnd = {{"type", "input_audio.end"}};
Json Audio(std::string_view bytes) { return Append("input_audio.append", bytes); }
RealtimeHints Path(std::string model = "") {
  RealtimeHints hints;
  hints.mistral_path = true;
  hints.model = std::move(model);
  return hints;
}
Json Update(Json session) { return {{"type", "session.update"}, {"session", std::move(session)}}; }
Json Format(const char* encoding, int rate) {
  return {{"audio_format", {{"encoding", encoding}, {"sample_rate", rate}}}};
}

void ExpectError(const Outbox& out, int code) {
  ASSERT_THAT(Types(out), ElementsAre("error"));
  const Json error = Messages(out)[0]["error"];
  EXPECT_TRUE(error["message"].is_string());
  EXPECT_EQ(error["code"], code);
  EXPECT_TRUE(error["code"].is_number_integer());
  EXPECT_FALSE(out.close.has_value());
}

TEST(Mistral, GreetsAndConfiguresAtOnce) {
  Client client(Path());
  EXPECT_THAT(Types(client.opening), ElementsAre("session.created"));
  EXPECT_EQ(Commands(client.opening), "C16000@480");
}

TEST(Mistral, UpdateBeforeAudioIsAnswered) {
  Client client(Path("other/name"));
  Json session = Format("pcm_mulaw", 8000);
  session["target_streaming_delay_ms"] = 240;
  session["future_field"] = 1;
  const Outbox out = client.Send(Update(session));
  EXPECT_EQ(Commands(out), "C8000@240");
  EXPECT_EQ(Messages(out)[0], Json({{"type", "session.updated"},
                                    {"session",
                                     {{"request_id", "sess-0a"},
                                      {"model", "other/name"},
                                      {"audio_format", {{"encoding", "pcm_mulaw"}, {"sample_rate", 8000}}},
                                      {"target_streaming_delay_ms", 240}}}}));
}

TEST(Mistral, TheServerEndsWhatWasBegunWithoutTheClosingOfAnEnd) {
  Client client(Path());
  EXPECT_EQ(Commands(client.EndAudio()), "") << "nothing was sent";
  client.Send(Audio("abcd"));
  EXPECT_EQ(Commands(client.EndAudio()), "E");
  const Outbox done = client.Done(0);
  EXPECT_THAT(Types(done), ElementsAre("transcription.done"));
  EXPECT_FALSE(done.close.has_value()) << "how it closes is the transport's business";
  EXPECT_TRUE(client.protocol.idle());
  const Outbox late = client.Fail(Fault::kGoingAway, "time over");
  EXPECT_EQ(Messages(late)[0]["error"], Json({{"message", "time over"}, {"code", 503}, {"type", "server_error"}}));
  EXPECT_EQ(late.close->code, 1001);
}

TEST(Mistral, UpdateAfterAudioIsRefusedAndSettingsAreKept) {
  Client client(Path());
  client.Send(Audio("abcd"));
  const Outbox out = client.Send(Update(Format("pcm_s16le", 8000)));
  ExpectError(out, 400);
  EXPECT_EQ(Commands(out), "");
}

TEST(Mistral, BadSettingsNameTheAllowedValues) {
  Client client(Path());
  ExpectError(client.Send(Update(Format("mp3", 16000))), 400);
  ExpectError(client.Send(Update(Format("pcm_s16le", 11025))), 400);
  ExpectError(client.Send(Update({{"audio_format", {{"encoding", "pcm_s16le"}}}})), 400);
  ExpectError(client.Send({{"type", "session.update"}}), 400);
  const Outbox out = client.Send(Update({{"target_streaming_delay_ms", 100}}));
  ExpectError(out, 400);
  EXPECT_THAT(Messages(out)[0]["error"]["message"].get<std::string>(), HasSubstr("multiple of 80 from 80 to 2400"));
}

TEST(Mistral, TheHelpersFlushAndEndGiveOneDoneThenTheClose) {
  Client client(Path());
  client.Send(Audio("abcd"));
  EXPECT_EQ(Commands(client.Send(kFlush)), "E");
  const Outbox end = client.Send(kEnd);
  EXPECT_EQ(Commands(end), "");
  EXPECT_FALSE(end.close.has_value());
  EXPECT_EQ(Messages(client.Word(0, " Hi"))[0], Json({{"type", "transcription.text.delta"}, {"text", " Hi"}}));
  const Outbox done = client.Done(0, 16001);
  const Json message = Messages(done).back();
  EXPECT_EQ(message["text"], " Hi");
  EXPECT_EQ(message["model"], "demo");
  ASSERT_TRUE(message.contains("language"));
  EXPECT_TRUE(message["language"].is_null());
  EXPECT_EQ(
      message["usage"],
      Json({{"prompt_tokens", 39}, {"completion_tokens", 24}, {"total_tokens", 63}, {"prompt_audio_seconds", 2}}));
  ASSERT_TRUE(done.close.has_value());
  EXPECT_EQ(done.close->code, 1000);
}

TEST(Mistral, SentencesComeWithTimesAndAgainInDone) {
  Client client(Path());
  client.Send(Audio("abcd"));
  StreamEvent event;
  event.text = " Hi.";
  event.audio_ms = 400;
  client.Stream(event);
  event.text = " You.";
  event.audio_ms = 1200;
  Outbox all = client.Stream(event);
  client.Send(kFlush);
  StreamEvent done;
  done.type = StreamEvent::Type::kDone;
  done.audio_ms = 1500;
  const Json last = Messages(client.Stream(done)).back();
  ASSERT_EQ(last["segments"].size(), 2U);
  EXPECT_EQ(last["segments"][1]["text"], "You.");
  EXPECT_TRUE(last["segments"][1]["end"].is_number());
  EXPECT_LE(last["segments"][1]["end"], 1.5);
}

TEST(Mistral, EndAloneEndsTheSegmentAndCloses) {
  Client client(Path());
  client.Send(Audio("abcd"));
  EXPECT_EQ(Commands(client.Send(kEnd)), "E");
  EXPECT_EQ(client.Done(0).close->code, 1000);
}

TEST(Mistral, EndAfterAFinishedFlushClosesAtOnce) {
  Client client(Path());
  client.Send(Audio("abcd"));
  client.Send(kFlush);
  EXPECT_FALSE(client.Done(0).close.has_value());
  EXPECT_EQ(client.Send(kEnd).close->code, 1000);
}

TEST(Mistral, FlushAndEndWithoutAudioAreAnswered) {
  Client client(Path());
  EXPECT_EQ(Commands(client.Send(kFlush)), "E");
  EXPECT_EQ(Messages(client.Done(0, 0)).back()["text"], "");
  Client other(Path());
  EXPECT_EQ(Commands(other.Send(kEnd)), "E");
  EXPECT_EQ(other.Done(0, 0).close->code, 1000);
}

TEST(Mistral, AudioAfterFlushOpensTheNextSegment) {
  Client client(Path());
  client.Send(Audio("abcd"));
  client.Send(kFlush);
  EXPECT_EQ(Commands(client.Send(Audio("ef"))), "A2");
  client.Word(0, " one");
  EXPECT_EQ(Messages(client.Done(0)).back()["text"], " one");
  client.Word(1, " two");
  client.Send(kFlush);
  EXPECT_EQ(Messages(client.Done(1)).back()["text"], " two");
}

TEST(Mistral, UnknownModelIsAnErrorInsteadOfTheGreeting) {
  Client client(Path("nope"));
  ASSERT_THAT(Types(client.opening), ElementsAre("error"));
  EXPECT_EQ(Messages(client.opening)[0]["error"]["code"], 404);
  EXPECT_EQ(client.opening.close->code, 1008);
}

TEST(Mistral, BadInputsGetIntegerCodesAndTheSessionLives) {
  Client client(Path());
  ExpectError(client.Text("{"), 400);
  ExpectError(client.Text("3"), 400);
  ExpectError(client.Send({{"type", "input_audio_buffer.append"}}), 400);
  ExpectError(client.Binary("x"), 400);
  ExpectError(client.Send({{"type", "input_audio.append"}, {"audio", "@@@@"}}), 400);
  EXPECT_EQ(Commands(client.Send(Audio("ab"))), "A2");
}

TEST(Mistral, FaultCodes) {
  EXPECT_EQ(Messages(Client(Path()).Fail(Fault::kEngine))[0]["error"]["code"], 500);
  EXPECT_EQ(Messages(Client(Path()).Fail(Fault::kIdle))[0]["error"]["code"], 408);
  EXPECT_EQ(Messages(Client(Path()).Fail(Fault::kLag))[0]["error"]["code"], 429);
  EXPECT_EQ(Client(Path()).Fail(Fault::kEngine).close->code, 1011);
}

}  // namespace
}  // namespace voxrt::server::test
