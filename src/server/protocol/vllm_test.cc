#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/protocol/test_util.h"

namespace voxrt::server::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Json kUpdate = {{"type", "session.update"}, {"model", "demo"}};
const Json kStart = {{"type", "input_audio_buffer.commit"}, {"final", false}};
const Json kFinal = {{"type", "input_audio_buffer.commit"}, {"final", true}};
Json Audio(std::string_view bytes) { return Append("input_audio_buffer.append", bytes); }

void ExpectError(const Outbox& out, const char* message, const char* code) {
  ASSERT_EQ(out.frames.size(), 1U);
  EXPECT_EQ(Messages(out)[0], Json({{"type", "error"}, {"error", message}, {"code", code}}));
  EXPECT_FALSE(out.close.has_value());
}

TEST(Vllm, TheExampleClientsOrderRunsOneGeneration) {
  Client client;
  EXPECT_THAT(client.Send(kUpdate).frames, IsEmpty());
  EXPECT_EQ(Commands(client.Send(kStart)), "S");
  EXPECT_EQ(Commands(client.Send(Audio("abcd"))), "A4");
  EXPECT_EQ(Commands(client.Send(kFinal)), "E");
  EXPECT_EQ(Messages(client.Word(0, " Hi"))[0], Json({{"type", "transcription.delta"}, {"delta", " Hi"}}));
  EXPECT_THAT(client.Word(0, "").frames, IsEmpty());
  client.Word(0, " there");
  EXPECT_FALSE(client.protocol.idle());
  const Json done = Messages(client.Done(0))[0];
  EXPECT_EQ(done, Json({{"type", "transcription.done"},
                        {"text", " Hi there"},
                        {"usage",
                         {{"prompt_tokens", 39},
                          {"total_tokens", 63},
                          {"completion_tokens", 24},
                          {"prompt_tokens_details", nullptr}}}}));
  EXPECT_TRUE(client.protocol.idle());
}

TEST(Vllm, TheServerEndsARunningGenerationOnceAndNothingElse) {
  Client client;
  client.Send(kUpdate);
  EXPECT_EQ(Commands(client.EndAudio()), "") << "nothing runs";
  client.Send(kStart);
  client.Send(Audio("abcd"));
  EXPECT_EQ(Commands(client.EndAudio()), "E");
  EXPECT_EQ(Commands(client.EndAudio()), "");
  EXPECT_FALSE(client.protocol.idle());
  EXPECT_EQ(Types(client.Done(0))[0], "transcription.done");
  EXPECT_TRUE(client.protocol.idle());
}

TEST(Vllm, GoingAwayIsAnErrorAndClose1001) {
  Client client;
  const Outbox out = client.Fail(Fault::kGoingAway, "time over");
  EXPECT_EQ(Messages(out)[0], Json({{"type", "error"}, {"error", "time over"}, {"code", "going_away"}}));
  EXPECT_EQ(out.close->code, 1001);
}

TEST(Vllm, AudioIs16KilohertzPcmWithTheDefaultDelay) {
  Client client;
  const Outbox out = client.Send(kUpdate);
  EXPECT_EQ(Commands(out), "C16000@480");
  EXPECT_TRUE(out.commands[0].options.waits_for_start);
}

TEST(Vllm, TheDelayExtensionIsCheckedAndApplied) {
  Client client;
  Json update = kUpdate;
  update["target_streaming_delay_ms"] = 960;
  EXPECT_EQ(Commands(client.Send(update)), "C16000@480 C16000@960");
  update["target_streaming_delay_ms"] = 100;
  EXPECT_EQ(Messages(client.Send(update))[0]["code"], "invalid_event");
}

TEST(Vllm, ModelErrors) {
  Client client;
  ExpectError(client.Send({{"type", "session.update"}, {"model", nullptr}}), "Missing required field: model",
              "invalid_event");
  ExpectError(client.Send({{"type", "session.update"}}), "Missing required field: model", "invalid_event");
  ExpectError(client.Send({{"type", "session.update"}, {"model", "X"}}), "The model `X` does not exist.",
              "model_not_found");
  ExpectError(client.Send(kStart), "Model not validated. Send a session.update with the model first.",
              "model_not_validated");
  EXPECT_THAT(client.Send(kUpdate).frames, IsEmpty());
  EXPECT_EQ(Commands(client.Send(kStart)), "S");
}

TEST(Vllm, ASecondStartWhileRunningIsIgnored) {
  Client client;
  client.Send(kUpdate);
  client.Send(kStart);
  EXPECT_EQ(Commands(client.Send(kStart)), "");
  EXPECT_EQ(Commands(client.Send({{"type", "input_audio_buffer.commit"}})), "");
}

TEST(Vllm, FinalWithoutStartStartsAndEnds) {
  Client client;
  client.Send(kUpdate);
  client.Send(Audio("abcd"));
  EXPECT_EQ(Commands(client.Send(kFinal)), "S E");
}

TEST(Vllm, OneDonePerFinalInOrder) {
  Client client;
  client.Send(kUpdate);
  client.Send(kFinal);
  client.Send(kFinal);
  client.Send(kStart);
  EXPECT_EQ(Messages(client.Done(0, 0))[0]["text"], "");
  client.Done(1, 0);
  EXPECT_FALSE(client.protocol.idle()) << "a third generation is running";
}

TEST(Vllm, EachGenerationHasItsOwnText) {
  Client client;
  client.Send(kUpdate);
  client.Send(kFinal);
  client.Word(0, " one");
  EXPECT_EQ(Messages(client.Done(0))[0]["text"], " one");
  client.Send(kFinal);
  client.Word(1, " two");
  EXPECT_EQ(Messages(client.Done(1))[0]["text"], " two");
}

TEST(Vllm, AudioBeforeTheUpdateIsKept) {
  Client client;
  EXPECT_EQ(Commands(client.Send(Audio("abcd"))), "");
  EXPECT_EQ(Commands(client.Send(kUpdate)), "C16000@480 A4");
}

TEST(Vllm, BadInputsGetTheirCode) {
  Client client;
  client.Send(kUpdate);
  ExpectError(client.Text("{"), "Invalid JSON", "invalid_json");
  ExpectError(client.Text("[1]"), "The 'type' field is missing.", "invalid_event");
  ExpectError(client.Text(R"({"type":7})"), "The 'type' field is missing.", "invalid_event");
  ExpectError(client.Send({{"type", "input_audio_buffer.clear"}}), "Unknown event type: input_audio_buffer.clear",
              "unknown_event");
  ExpectError(client.Send({{"type", "input_audio_buffer.append"}, {"audio", "@@@@"}}), "Invalid audio data",
              "invalid_audio");
  ExpectError(client.Send({{"type", "input_audio_buffer.append"}, {"audio", 12}}), "Invalid audio data",
              "invalid_audio");
  ExpectError(client.Send({{"type", "input_audio_buffer.append"}}), "Invalid audio data", "invalid_audio");
  EXPECT_EQ(Messages(client.Binary("x"))[0]["code"], "invalid_event");
  EXPECT_THAT(client.Binary("").frames, IsEmpty());
  EXPECT_EQ(Commands(client.Send(Audio(""))), "");
}

TEST(Vllm, EmptyDeltasOnRequestOneMessagePerStep) {
  SessionConfig config = Config();
  config.vllm_empty_deltas = true;
  Client client({}, config);
  client.Send(kUpdate);
  const Outbox out = client.Word(0, "");
  EXPECT_EQ(Messages(out)[0], Json({{"type", "transcription.delta"}, {"delta", ""}}));
  EXPECT_FALSE(out.frames[0].is_delta()) << "not to be merged";
}

TEST(Vllm, FaultsCloseWithTheirCode) {
  struct Row {
    Fault fault;
    const char* code;
    int close;
  };
  for (const Row& row : {Row{Fault::kEngine, "processing_error", 1011}, Row{Fault::kIdle, "idle_timeout", 1008},
                         Row{Fault::kLag, "buffer_full", 1013}, Row{Fault::kSlowReader, "buffer_full", 1013},
                         Row{Fault::kBufferFull, "buffer_full", 1013}}) {
    Client client;
    client.Send(kUpdate);
    const Outbox out = client.Fail(row.fault);
    EXPECT_EQ(Messages(out)[0], Json({{"type", "error"}, {"error", "what happened"}, {"code", row.code}}));
    EXPECT_EQ(out.close->code, row.close);
  }
}

}  // namespace
}  // namespace voxrt::server::test
