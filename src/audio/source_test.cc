// Opening inputs: every way in gives the same samples or one line; live pipes are not waited for longer than their
// writer takes.
#include "audio/source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "audio/wav_for_test.h"
#include "support/root.h"

namespace voxrt::audio {
namespace {

using test::Bytes;
using test::MakeWav;
using test::MemoryReader;
using test::ReadAll;

Status OpenError(const Bytes& bytes, const SourceOptions& options = {}) {
  auto source = OpenReader(MemoryReader(bytes), "in%s%n", options);
  if (!source.ok()) {
    test::ExpectOneLine(source.status(), "in%s%n");
    return source.status();
  }
  return {};
}

class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    close(ends_[0]);
    Close();
  }
  int reading() const { return ends_[0]; }
  void Write(const Bytes& bytes) {
    ASSERT_EQ(write(ends_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  void Close() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(OpenReader, AnyPortionsGiveTheSameSamples) {
  const std::vector<int16_t> tone = test::Tone(9999);
  const Bytes wav = MakeWav({}, test::S16Bytes(tone));
  for (size_t portion : {1, 3, 999, 4096, 0}) {
    auto source = OpenReader(MemoryReader(wav, portion), "pipe", {});
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_EQ(ReadAll(**source, nullptr, 1000), test::ToFloat(tone)) << portion;
  }
}

TEST(OpenReader, RawSamplesCarryOddBytes) {
  const std::vector<int16_t> tone = test::Tone(1000);
  Bytes bytes = test::S16Bytes(tone);
  bytes.push_back(std::byte{7});  // the tail byte of a cut stream is dropped
  for (size_t portion : {1, 3, 999}) {
    auto source = OpenReader(MemoryReader(bytes, portion), "-", {.raw = RawFormat{}});
    ASSERT_TRUE(source.ok());
    EXPECT_EQ(ReadAll(**source), test::ToFloat(tone));
    EXPECT_EQ((*source)->info().container, "raw");
    EXPECT_EQ((*source)->info().codec, "s16le");
    EXPECT_LT((*source)->info().duration_s, 0.0);
  }
}

TEST(OpenReader, RawIsNeverSniffed) {
  const Bytes bytes = test::FromText("RIFF\x1A\r\n<html>.");
  auto source = OpenReader(MemoryReader(bytes), "-", {.raw = RawFormat{.format = SampleFormat::kU8}});
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(ReadAll(**source).size(), bytes.size());
}

TEST(OpenReader, EmptyRawInputIsEmptyAudio) {
  auto source = OpenReader(MemoryReader({}), "-", {.raw = RawFormat{}});
  ASSERT_TRUE(source.ok());
  EXPECT_TRUE(ReadAll(**source).empty());
}

TEST(OpenReader, RefusesImpossibleRawFormats) {
  for (int rate : {0, -1, 999, 2'000'000'000}) {
    EXPECT_EQ(OpenError({}, {.raw = RawFormat{.rate = rate}}).code(), StatusCode::kInvalidAudio) << rate;
  }
  for (int channels : {0, -1, 257}) {
    EXPECT_EQ(OpenError({}, {.raw = RawFormat{.channels = channels}}).code(), StatusCode::kInvalidAudio) << channels;
  }
}

TEST(OpenReader, SaysWhatIsNotAudio) {
  const auto says = [](std::string_view content, std::string_view part) {
    const Status status = OpenError(test::FromText(content));
    EXPECT_EQ(status.code(), StatusCode::kInvalidAudio);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  says("", "0 bytes");
  says("R", "text");
  says("some words in a file renamed to .wav", "text");
  says("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS");
  says("<!doctype html>", "web page");
  says("#EXTM3U\nhttp://localhost/a.ts\n", "playlist");
  says("RIFF\1\1\1\1WAVE", "inside its header");
}

TEST(OpenReader, ShortSignalsKeepTheirLength) {
  for (size_t n : {0, 1, 159, 160, 1279, 1280, 1281}) {
    auto source = OpenReader(MemoryReader(MakeWav({}, test::S16Bytes(test::Tone(n)))), "pipe", {});
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_EQ(ReadAll(**source).size(), n);
    std::vector<float> after(1);
    EXPECT_EQ(*(*source)->Read(after), 0u);
  }
}

TEST(OpenReader, AFailingReaderIsReportedAfterWhatItGave) {
  const Bytes wav = MakeWav({.data_size = 0xFFFFFFFF}, test::S16Bytes(test::Tone(1000)));
  bool given = false;
  auto reader = [&](std::span<std::byte> buffer) -> Result<size_t> {
    if (given) return Status(StatusCode::kIo, "cable pulled");
    given = true;
    std::copy(wav.begin(), wav.end(), buffer.begin());
    return wav.size();
  };
  auto source = OpenReader(reader, "pipe", {});
  ASSERT_TRUE(source.ok());
  Status status;
  EXPECT_EQ(ReadAll(**source, &status).size(), 1000u);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.message(), "cable pulled");
}

TEST(OpenReader, AHugeClaimNeedsNoMemory) {
  auto source =
      OpenReader(MemoryReader(MakeWav({.data_size = 0x7FFFFFFE}, test::S16Bytes(test::Tone(80)))), "pipe", {});
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(ReadAll(**source).size(), 80u);
}

TEST(OpenFile, ReadsTheDemoClipsWithTheirDuration) {
  const std::string path = voxrt::test::Root() + "/models/demo/clips/flite_slt_0.wav";
  auto source = OpenFile(path, {});
  ASSERT_TRUE(source.ok()) << source.status().message();
  const AudioInfo info = (*source)->info();
  const std::vector<float> samples = ReadAll(**source);
  EXPECT_EQ(info.container, "wav");
  EXPECT_EQ(info.codec, "pcm_s16le");
  EXPECT_EQ(info.rate, 16000);
  EXPECT_EQ(info.channels, 1);
  EXPECT_EQ(static_cast<double>(samples.size()), info.duration_s * 16000);
  EXPECT_EQ(samples.size() * 2 + 44, std::filesystem::file_size(path));
}

TEST(OpenFile, NamesWhatIsWrong) {
  const auto missing = OpenFile("/no/such/%s%n.wav", {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.status().message(), "/no/such/%s%n.wav: no such file; check the name");
  const auto directory = OpenFile(testing::TempDir(), {});
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.status().code(), StatusCode::kInvalidAudio);
  EXPECT_NE(directory.status().message().find("is a directory"), std::string::npos);
  const auto lines = OpenFile("a\nb", {});
  ASSERT_FALSE(lines.ok());
  test::ExpectOneLine(lines.status(), "a?b");
}

TEST(OpenFile, DurationIsLimitedByTheRealEnd) {
  const std::string path =
      test::WriteTemporary("cut.wav", MakeWav({.data_size = 1'000'000}, test::S16Bytes(test::Tone(1600))));
  auto source = OpenFile(path, {});
  ASSERT_TRUE(source.ok());
  EXPECT_DOUBLE_EQ((*source)->info().duration_s, 0.1);
  std::filesystem::remove(path);
}

TEST(OpenFile, RawFilesKnowTheirDuration) {
  const std::string path = test::WriteTemporary("raw.pcm", Bytes(32000));
  auto source = OpenFile(path, {.raw = RawFormat{.channels = 2}});
  ASSERT_TRUE(source.ok());
  EXPECT_DOUBLE_EQ((*source)->info().duration_s, 0.5);
  std::filesystem::remove(path);
}

TEST(OpenFile, ReadsANamedPipe) {
  const std::string path = testing::TempDir() + "voxrt_fifo_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] {
    const Bytes wav = MakeWav({.data_size = 0xFFFFFFFF}, test::S16Bytes(test::Tone(5000)));
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(wav.data()), static_cast<std::streamsize>(wav.size()));
  });
  auto source = OpenFile(path, {});
  EXPECT_TRUE(source.ok());
  if (source.ok()) {
    EXPECT_EQ(ReadAll(**source), test::ToFloat(test::Tone(5000)));
  }
  writer.join();
  std::filesystem::remove(path);
}

#ifdef VOXRT_HAVE_SOXR
TEST(OpenReader, OtherRatesAreResampled) {
  for (int rate : {8000, 11025, 22050, 44100, 48000, 96000}) {
    const auto wav = MakeWav({.rate = static_cast<uint32_t>(rate)},
                             test::S16Bytes(test::Tone(static_cast<size_t>(rate), 300.0, rate)));
    auto source = OpenReader(MemoryReader(wav), "pipe", {});
    ASSERT_TRUE(source.ok());
    const std::vector<float> samples = ReadAll(**source);
    EXPECT_NEAR(static_cast<double>(samples.size()), 16000, 1);
    const std::vector<float> want = test::ToFloat(test::Tone(16000, 300.0));
    for (size_t i = 2000; i < 14000; ++i) ASSERT_NEAR(samples[i], want[i], 3e-3) << rate;
  }
}
#else
TEST(OpenReader, OtherRatesAreRefusedByName) {
  const Status status = OpenError(MakeWav({.rate = 44100}, Bytes(100)));
  EXPECT_NE(status.message().find("44100 Hz"), std::string::npos);
}
#endif

TEST(DescriptorReader, HandsOutWhatHasArrivedWhileThePipeIsOpen) {
  Pipe pipe;
  const std::vector<int16_t> tone = test::Tone(3000);
  const Bytes wav = MakeWav({.data_size = 0xFFFFFFFF}, test::S16Bytes(tone));
  const Bytes first(wav.begin(), wav.begin() + 2045), second(wav.begin() + 2045, wav.end());  // cut inside a sample
  pipe.Write(first);
  auto source = OpenReader(DescriptorReader(pipe.reading(), nullptr), "-", {});
  ASSERT_TRUE(source.ok());
  std::vector<float> buffer(16000), got;
  while (got.size() < 1000) {  // nothing more is written: a Read that waited for it would hang
    auto count = (*source)->Read(buffer);
    ASSERT_TRUE(count.ok());
    ASSERT_GT(*count, 0u);
    got.insert(got.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*count));
  }
  EXPECT_EQ(got.size(), 1000u);
  pipe.Write(second);
  pipe.Close();
  const std::vector<float> rest = ReadAll(**source);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, test::ToFloat(tone));
}

TEST(DescriptorReader, CancelEndsAWaitingRead) {
  Pipe pipe;
  std::atomic<bool> cancel = false;
  const ByteReader reader = DescriptorReader(pipe.reading(), &cancel);
  std::thread canceller([&] { cancel = true; });
  std::byte buffer[16];
  const auto count = reader(buffer);
  canceller.join();
  ASSERT_FALSE(count.ok());
  EXPECT_EQ(count.status().code(), StatusCode::kCancelled);
}

TEST(DescriptorReader, WaitsOnANonBlockingDescriptor) {
  Pipe pipe;
  ASSERT_EQ(fcntl(pipe.reading(), F_SETFL, O_NONBLOCK), 0);
  std::thread writer([&] { pipe.Write(test::FromText("abc")); });
  std::byte buffer[16];
  const auto count = DescriptorReader(pipe.reading(), nullptr)(buffer);
  writer.join();
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 3u);
}

TEST(DescriptorReader, ReportsEndAndFailure) {
  Pipe pipe;
  pipe.Close();
  std::byte buffer[16];
  EXPECT_EQ(*DescriptorReader(pipe.reading(), nullptr)(buffer), 0u);
  const int unused = 1000;
  EXPECT_EQ(DescriptorReader(unused, nullptr)(buffer).status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace voxrt::audio
