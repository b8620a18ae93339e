// The parts of the program that need no model: output forms, completion, manual page, percentiles, clocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "bench_machine.h"
#include "describe.h"
#include "output_file.h"
#include "screen.h"
#include "sink.h"

namespace voxrt::app {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

engine::Event TokenEvent(std::string text, int64_t end_ms, int32_t token = 7) {
  engine::Event event;
  event.token = token;
  event.end_ms = end_ms;
  event.text = std::move(text);
  return event;
}

// Runs a sink over pieces and returns every write.
std::vector<std::string> Writes(OutputFormat format, bool prefix, const std::vector<std::string>& pieces,
                                std::string name = "a b.wav") {
  std::vector<std::string> writes;
  const std::unique_ptr<Sink> sink = MakeSink(format, std::move(name), prefix, [&](std::string_view bytes) {
    writes.emplace_back(bytes);
    return Status();
  });
  std::string text;
  int64_t end_ms = 0;
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(sink->Token(TokenEvent(piece, end_ms += 80)).ok());
    text += piece;
  }
  Summary summary;
  summary.audio_ms = end_ms;
  summary.tokens = static_cast<int64_t>(pieces.size());
  EXPECT_TRUE(sink->End(text, summary).ok());
  return writes;
}

std::string Joined(const std::vector<std::string>& writes) {
  std::string out;
  for (const std::string& write : writes) out += write;
  return out;
}

TEST(TextSink, StreamsPiecesTrimmedAtBothEnds) {
  const std::vector<std::string> writes =
      Writes(OutputFormat::kText, false, {"", " ", " Hello", "", " world", ". ", ""});
  EXPECT_EQ(Joined(writes), "Hello world.\n");
  EXPECT_EQ(writes[0], "Hello") << "text must go out as it comes";
}

TEST(TextSink, KeepsInnerWhiteSpaceExactly) {
  EXPECT_EQ(Joined(Writes(OutputFormat::kText, false, {" a ", "  ", "b\n", "c  "})), "a   b\nc\n");
}

TEST(TextSink, PutsTheNameBeforeTextOfManyInputsLiterally) {
  EXPECT_EQ(Joined(Writes(OutputFormat::kText, true, {" hi"}, "x%s%n.wav")), "x%s%n.wav: hi\n");
  EXPECT_EQ(Joined(Writes(OutputFormat::kText, true, {"", ""}, "x.wav")), "x.wav: \n");
  EXPECT_EQ(Joined(Writes(OutputFormat::kText, false, {})), "\n");
}

TEST(TokensSink, WritesIdsOnOneLine) {
  EXPECT_EQ(Joined(Writes(OutputFormat::kTokens, false, {"", " a", ""})), "7 7 7\n");
}

TEST(JsonSink, WritesOneValidObjectALineWithRawDeltas) {
  std::istringstream lines(
      Joined(Writes(OutputFormat::kJson, false, {"", " Hello", " \xF0\x9F\x98\x80 "}, "bad\xff.wav")));
  std::vector<base::Json> parsed;
  for (std::string line; std::getline(lines, line);) {
    const Result<base::Json> json = base::ParseJson(line);
    ASSERT_TRUE(json.ok()) << line;
    parsed.push_back(*json);
  }
  ASSERT_THAT(parsed, SizeIs(4));
  EXPECT_EQ(*parsed[0].Find("type")->AsString(), "delta");
  EXPECT_EQ(*parsed[0].Find("text")->AsString(), " Hello");
  EXPECT_EQ(parsed[0].Find("start_ms")->AsInt(), 80);
  EXPECT_EQ(parsed[0].Find("end_ms")->AsInt(), 160);
  EXPECT_EQ(*parsed[0].Find("file")->AsString(), "bad\xEF\xBF\xBD.wav");
  EXPECT_EQ(*parsed[2].Find("type")->AsString(), "final");
  EXPECT_EQ(*parsed[2].Find("text")->AsString(), "Hello \xF0\x9F\x98\x80");
  EXPECT_EQ(*parsed[3].Find("type")->AsString(), "usage");
  EXPECT_EQ(parsed[3].Find("tokens")->AsInt(), 3);
}

TEST(SubtitleSinks, WriteHeaderEvenForSilence) {
  EXPECT_EQ(Joined(Writes(OutputFormat::kVtt, false, {})), "WEBVTT\n\n");
  EXPECT_EQ(Joined(Writes(OutputFormat::kSrt, false, {})), "");
}

TEST(SubtitleSinks, TakeSegments) {
  std::string out;
  const std::unique_ptr<Sink> sink = MakeSink(OutputFormat::kSrt, "x", false, [&](std::string_view bytes) {
    out += bytes;
    return Status();
  });
  ASSERT_TRUE(sink->Segments({{.text = "Hi.", .start_ms = 0, .end_ms = 400, .words = {}}}).ok());
  Summary summary;
  summary.audio_ms = 380;
  ASSERT_TRUE(sink->End(" Hi.", summary).ok());
  EXPECT_EQ(out, "1\n00:00:00,000 --> 00:00:00,380\nHi.\n\n");
}

TEST(OutputFile, AppearsOnlyWhenCommitted) {
  const std::string path = testing::TempDir() + "/voxrt_output_file.txt";
  std::filesystem::remove(path);
  {
    auto file = OutputFile::Create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write("abandoned").ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write("kept").ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE((*file)->Commit().ok());
  std::ifstream in(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "kept");
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST(OutputFile, SaysWhereItCannotBe) {
  const auto file = OutputFile::Create("/nonexistent/folder/x.txt");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.status().message(), HasSubstr("/nonexistent/folder/x.txt"));
}

TEST(Describe, EveryFlagIsInEveryDescription) {
  Cli cli;
  cli.app.description("test");
  AddTranscribe(cli);
  AddInspect(cli);
  AddDescribe(cli);
  const std::string bash = BashCompletion(cli.app);
  const std::string zsh = ZshCompletion(cli.app);
  const std::string fish = FishCompletion(cli.app);
  const std::string man = ManPage(cli.app, "voxrt 0");
  EXPECT_THAT(man, StartsWith(".TH VOXRT 1"));
  EXPECT_THAT(bash, HasSubstr("fp32 bf16 int8")) << "values of a fixed set are completed";
  for (const CLI::App* command : cli.app.get_subcommands([](const CLI::App*) { return true; })) {
    for (const CLI::Option* option : command->get_options([](const CLI::Option*) { return true; })) {
      for (const std::string& name : option->get_lnames()) {
        EXPECT_THAT(bash, HasSubstr("--" + name));
        EXPECT_THAT(zsh, HasSubstr("--" + name + "["));
        EXPECT_THAT(fish, HasSubstr(" -l " + name));
      }
      EXPECT_FALSE(option->get_description().empty()) << option->get_name();
    }
  }
}

TEST(WeightRate, IsAShareOfWhatTheHostReadsForDevicesInHostMemory) {
  const MemoryPeak peak = PeakFor({.backend = "cpu"}, 20e9);
  const base::Json rate = WeightRate(10'000'000, 1.0, peak);
  EXPECT_EQ(rate.Find("bytes")->AsInt(), 10'000'000);
  EXPECT_DOUBLE_EQ(rate.Find("gb_per_s")->AsDouble().value_or(0), 10.0);
  ASSERT_NE(rate.Find("share_of_read"), nullptr);
  EXPECT_DOUBLE_EQ(rate.Find("share_of_read")->AsDouble().value_or(0), 0.5);
  EXPECT_EQ(rate.Find("share_of_nominal"), nullptr);
  EXPECT_EQ(WeightRateText(rate, " of weights"), "10.0 GB/s of weights, 50 % of read");
}

TEST(WeightRate, IsAShareOfTheNominalBandwidthOfACard) {
  const MemoryPeak peak =
      PeakFor({.backend = "cuda", .memory_bytes = int64_t{80} << 30, .memory_bytes_per_s = 4'000'000'000'000}, 20e9);
  EXPECT_TRUE(peak.nominal);
  const base::Json rate = WeightRate(3'000'000'000, 1.0, peak);
  ASSERT_NE(rate.Find("share_of_nominal"), nullptr);
  EXPECT_DOUBLE_EQ(rate.Find("share_of_nominal")->AsDouble().value_or(0), 0.75);
  EXPECT_EQ(rate.Find("share_of_read"), nullptr);
  EXPECT_EQ(WeightRateText(rate, ""), "3000.0 GB/s, 75 % of nominal bandwidth");
}

TEST(WeightRate, IsAShareOfNothingForACardThatDoesNotTellItsBandwidth) {
  const base::Json rate =
      WeightRate(3'000'000'000, 1.0, PeakFor({.backend = "cuda", .memory_bytes = int64_t{80} << 30}, 20e9));
  EXPECT_EQ(rate.Find("share_of_read"), nullptr);
  EXPECT_EQ(rate.Find("share_of_nominal"), nullptr);
  EXPECT_EQ(WeightRateText(rate, ""), "3000.0 GB/s");
}

TEST(WeightRate, SaysWhereMoreThanTheMemoryGivesComesFrom) {
  const base::Json rate = WeightRate(10'000'000, 0.25, PeakFor({.backend = "cpu"}, 20e9));
  EXPECT_EQ(WeightRateText(rate, ""), "40.0 GB/s, 200 % of read: out of a cache");
}

TEST(Percentile, TakesTheSmallestValueThatCoversTheShare) {
  const std::vector<double> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(Percentile(values, 0.5), 5);
  EXPECT_EQ(Percentile(values, 0.9), 9);
  EXPECT_EQ(Percentile(values, 0.99), 10);
  EXPECT_EQ(Percentile({3}, 0.01), 3);
  EXPECT_EQ(Percentile({}, 0.5), 0);
}

TEST(FormatClock, RollsOverToHours) {
  EXPECT_EQ(FormatClock(0), "0:00");
  EXPECT_EQ(FormatClock(187400), "3:07");
  EXPECT_EQ(FormatClock(3765000), "1:02:45");
}

}  // namespace
}  // namespace voxrt::app
