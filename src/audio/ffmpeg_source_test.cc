// FFmpeg's libraries behind AudioSource: what the ffmpeg command encodes comes back with its duration and energy, from
// files and from pipes; hostile inputs open nothing and end in one line.
#include "audio/ffmpeg_source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "audio/level.h"
#include "audio/wav_for_test.h"
#include "support/root.h"

namespace voxrt::audio {
namespace {

using test::Bytes;
using test::MemoryReader;
using test::ReadAll;

#define SKIP_WITHOUT_TOOLS()                                    \
  if (!FfmpegBuiltIn()) GTEST_SKIP() << "built without FFmpeg"; \
  if (std::system("ffmpeg -version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no ffmpeg command to make inputs with"

const std::string& Clip() {
  static const std::string path = voxrt::test::Root() + "/models/demo/clips/flite_slt_0.wav";
  return path;
}

struct Case {
  const char* extension;
  const char* options;
  const char* codec;
  bool pipe = true;  // decodable without seeking
};

// A file that ffmpeg encodes from the clip (or from `input`), removed at the end.
class Encoded {
 public:
  Encoded(const std::string& extension, const std::string& options, const std::string& input = "-i " + Clip())
      : path_(NewPath(extension)), ok_(RunFfmpeg(input + " " + options + " " + path_)) {}
  // All cases by one process: starting ffmpeg takes longer than encoding. Where one encoder is missing, one process
  // each.
  static std::vector<std::unique_ptr<Encoded>> All(std::span<const Case> cases,
                                                   const std::string& input = "-i " + Clip()) {
    std::vector<std::unique_ptr<Encoded>> all;
    std::string command = input;
    for (const Case& c : cases) {
      all.push_back(std::unique_ptr<Encoded>(new Encoded(NewPath(c.extension))));
      command += std::string(" ") + c.options + " " + all.back()->path_;
    }
    const bool together = RunFfmpeg(command);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i]->ok_ = together || RunFfmpeg(input + " " + cases[i].options + " " + all[i]->path_);
    }
    return all;
  }
  ~Encoded() { std::filesystem::remove(path_); }
  Encoded(const Encoded&) = delete;
  Encoded& operator=(const Encoded&) = delete;
  bool ok() const { return ok_; }  // false when this ffmpeg lacks the encoder
  const std::string& path() const { return path_; }

 private:
  explicit Encoded(std::string path) : path_(std::move(path)) {}
  static std::string NewPath(const std::string& extension) {
    static int counter = 0;
    return testing::TempDir() + "voxrt_" + std::to_string(getpid()) + "_" + std::to_string(++counter) + "." + extension;
  }
  static bool RunFfmpeg(const std::string& arguments) {
    return std::system(("ffmpeg -nostdin -loglevel quiet -y " + arguments).c_str()) == 0;
  }

  std::string path_;
  bool ok_ = false;
};

std::vector<float> ClipSamples() {
  auto source = OpenFile(Clip(), {});
  EXPECT_TRUE(source.ok());
  return ReadAll(**source);
}

void ExpectLikeTheClip(const std::vector<float>& samples, const std::string& what) {
  const std::vector<float> clip = ClipSamples();
  EXPECT_NEAR(static_cast<double>(samples.size()), static_cast<double>(clip.size()), 3200) << what;  // codec padding
  EXPECT_NEAR(ToDbfs(MeasureLevel(samples).rms), ToDbfs(MeasureLevel(clip).rms), 3.5f)
      << what;  // ffmpeg's own mixing to stereo takes 3 dB
}

void ExpectPipeGives(const Bytes& bytes, const std::vector<float>& samples, const Case& c, const std::string& what) {
  auto piped = OpenReader(MemoryReader(bytes, 777), "pipe", {});
  ASSERT_TRUE(piped.ok()) << what << ": " << piped.status().message();
  const std::vector<float> got = ReadAll(**piped);
  // From a pipe the libraries do not cut an mp3 encoder's padding off the end.
  ASSERT_GE(got.size(), samples.size()) << what;
  ASSERT_LE(got.size(), samples.size() + (c.extension == std::string("mp3") ? 1152 : 0)) << what;
  // MPEG layer 2 is decoded by the layer 3 decoder where the header does not tell: same up to rounding.
  for (size_t i = 0; i < samples.size(); ++i) ASSERT_NEAR(got[i], samples[i], 1e-4) << what << " at " << i;
}

// Every outcome is fine but a crash, a hang or a message of more than one line.
void DamageAndRead(const Bytes& bytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 6; ++round) {
    Bytes damaged = bytes;
    if (round < 3) damaged.resize(bytes.size() * static_cast<size_t>(round + 1) / 5);
    for (int i = 0; round >= 3 && i < 50; ++i) damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    auto source = OpenReader(MemoryReader(damaged), "pipe", {});
    Status status = source.status();
    if (source.ok()) ReadAll(**source, &status);
    if (!status.ok()) test::ExpectOneLine(status, "pipe");
  }
}

const Case kCases[] = {
    {"mp3", "-c:a libmp3lame -b:a 64k", "mp3"},
    {"mp3", "-c:a libmp3lame -b:a 64k -write_xing 0 -id3v2_version 0", "mp3"},
    {"m4a", "-c:a aac -movflags +faststart", "aac"},
    {"m4a", "-c:a aac", "aac", false},
    {"m4a", "-c:a alac -movflags +faststart", "alac"},
    {"mp4", "-c:a aac -movflags frag_keyframe+empty_moov", "aac"},
    {"aac", "-c:a aac", "aac"},
    {"flac", "-c:a flac", "flac"},
    {"ogg", "-c:a libvorbis", "vorbis"},
    {"ogg", "-c:a libopus -b:a 32k", "opus"},
    {"webm", "-c:a libopus -b:a 32k", "opus"},
    {"mka", "-c:a pcm_s16le", "pcm_s16le"},
    {"aiff", "-c:a pcm_s16be", "pcm_s16be"},
    {"caf", "-c:a pcm_s16be", "pcm_s16be"},
    {"au", "-c:a pcm_mulaw", "pcm_mulaw"},
    {"w64", "-c:a pcm_s16le", "pcm_s16le"},
    {"wav", "-c:a adpcm_ima_wav", "adpcm_ima_wav"},
    {"wav", "-c:a libmp3lame -b:a 64k", "mp3"},
    {"wma", "-c:a wmav2", "wmav2"},
    {"ac3", "-c:a ac3", "ac3"},
    {"mp2", "-c:a mp2", "mp2"},
    {"ts", "-c:a aac", "aac"},
    {"wv", "-c:a wavpack", "wavpack"},
    {"tta", "-c:a tta", "tta"},
    {"flv", "-c:a libmp3lame -ar 22050", "mp3"},
    {"avi", "-c:a libmp3lame", "mp3"},
};

// One test, so that the files are made once: whole from a file and from a pipe, then cut and damaged.
TEST(FfmpegSource, DecodesWhatFfmpegEncodesAndSurvivesItsDamage) {
  SKIP_WITHOUT_TOOLS();
  const auto files = Encoded::All(kCases);
  int decoded = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const Case& c = kCases[i];
    const std::string what = std::string(c.extension) + " " + c.options;
    if (!files[i]->ok()) continue;
    ++decoded;
    auto file = OpenFile(files[i]->path(), {});
    ASSERT_TRUE(file.ok()) << what << ": " << file.status().message();
    EXPECT_EQ((*file)->info().codec, c.codec) << what;
    EXPECT_GT((*file)->info().rate, 0) << what;
    EXPECT_EQ((*file)->info().channels, 1) << what;
    const std::vector<float> samples = ReadAll(**file);
    ExpectLikeTheClip(samples, what);
    const Bytes bytes = test::FileBytes(files[i]->path());
    if (c.pipe) ExpectPipeGives(bytes, samples, c, what);
    DamageAndRead(bytes);
  }
  EXPECT_GT(decoded, 10);
}

TEST(FfmpegSource, LosslessIsExact) {
  SKIP_WITHOUT_TOOLS();
  const std::pair<const char*, const char*> lossless[] = {{"flac", ""},
                                                          {"aiff", "-c:a pcm_s16be"},
                                                          {"mka", "-c:a pcm_s24le"},
                                                          {"m4a", "-c:a alac"},
                                                          {"caf", "-c:a pcm_f32le"}};
  for (const auto& [extension, options] : lossless) {
    const Encoded encoded(extension, options);
    if (!encoded.ok()) continue;
    auto source = OpenFile(encoded.path(), {});
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_EQ(ReadAll(**source), ClipSamples()) << extension;
  }
}

TEST(FfmpegSource, StereoAndOtherRatesBecome16kMono) {
  SKIP_WITHOUT_TOOLS();
  for (const char* options : {"-ac 2 -ar 44100 -c:a flac", "-ac 2 -ar 48000 -c:a flac", "-ar 8000 -c:a flac"}) {
    const Encoded encoded("flac", options);
    ASSERT_TRUE(encoded.ok());
    auto source = OpenFile(encoded.path(), {});
#ifdef VOXRT_HAVE_SOXR
    ASSERT_TRUE(source.ok()) << source.status().message();
    ExpectLikeTheClip(ReadAll(**source), options);
#else
    ASSERT_FALSE(source.ok());
    EXPECT_NE(source.status().message().find(" Hz"), std::string::npos);
#endif
  }
}

TEST(FfmpegSource, TakesTheSoundOfAVideo) {
  SKIP_WITHOUT_TOOLS();
  const std::string input = "-f lavfi -i testsrc=size=64x48:rate=5 -i " + Clip();
  for (const char* extension : {"mp4", "mkv", "ts", "avi"}) {
    const Encoded encoded(extension, "-shortest -c:v mpeg4 -c:a mp2 -ar 16000", input);
    if (!encoded.ok()) continue;
    auto source = OpenFile(encoded.path(), {});
    ASSERT_TRUE(source.ok()) << extension << ": " << source.status().message();
    ExpectLikeTheClip(ReadAll(**source), extension);
  }
  const Encoded silent("mp4", "-t 1 -c:v mpeg4", "-f lavfi -i testsrc=size=64x48:rate=5");
  ASSERT_TRUE(silent.ok());
  const auto source = OpenFile(silent.path(), {});
  ASSERT_FALSE(source.ok());
  test::ExpectOneLine(source.status(), silent.path());
  EXPECT_NE(source.status().message().find("no audio"), std::string::npos) << source.status().message();
}

TEST(FfmpegSource, AnIndexAtTheEndNeedsAFile) {
  SKIP_WITHOUT_TOOLS();
  const Encoded encoded("m4a", "-c:a aac");
  ASSERT_TRUE(encoded.ok());
  size_t asked = 0;
  auto reader = [&, inner = MemoryReader(test::FileBytes(encoded.path()), 1024)](std::span<std::byte> buffer) mutable {
    auto count = inner(buffer);
    asked += count.ok() ? *count : 0;
    return count;
  };
  const auto source = OpenReader(reader, "pipe", {});
  ASSERT_FALSE(source.ok());
  test::ExpectOneLine(source.status(), "pipe");
  EXPECT_NE(source.status().message().find("moov"), std::string::npos) << source.status().message();
  EXPECT_LT(asked, 10000u) << "the refusal must not wait for the end of the input";
}

TEST(FfmpegSource, FirstSamplesComeBeforeTheEndOfTheInput) {
  SKIP_WITHOUT_TOOLS();
  const Case streams[] = {{"mp3", "-c:a libmp3lame -b:a 64k", ""},
                          {"ogg", "-c:a libopus -b:a 32k -page_duration 100000", ""},
                          {"webm", "-c:a libopus -b:a 32k -cluster_time_limit 500", ""},
                          {"flac", "", ""},
                          {"aac", "-c:a aac", ""}};
  const auto files = Encoded::All(streams, "-stream_loop 3 -i " + Clip());
  for (size_t i = 0; i < files.size(); ++i) {
    const Case& c = streams[i];
    if (!files[i]->ok()) continue;
    const Bytes bytes = test::FileBytes(files[i]->path());
    size_t given = 0;
    auto reader = [&](std::span<std::byte> buffer) -> Result<size_t> {
      const size_t count = std::min({buffer.size(), size_t{500}, bytes.size() - given});
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(given), count, buffer.begin());
      given += count;
      return count;
    };
    auto source = OpenReader(reader, "pipe", {});
    ASSERT_TRUE(source.ok()) << c.extension << ": " << source.status().message();
    std::vector<float> buffer(160);
    ASSERT_GT(*(*source)->Read(buffer), 0u);
    EXPECT_LT(given, bytes.size() / 3) << c.extension;
    EXPECT_GT(ReadAll(**source).size(), 16000u * 25) << c.extension;
  }
}

TEST(FfmpegSource, CancelledInputIsCancelledNotDamaged) {
  SKIP_WITHOUT_TOOLS();
  const Encoded encoded("mp3", "-c:a libmp3lame -b:a 64k");
  ASSERT_TRUE(encoded.ok());
  const Bytes bytes = test::FileBytes(encoded.path());
  for (size_t limit : {size_t{600}, bytes.size() / 2}) {
    auto reader = [&, inner = MemoryReader(bytes),
                   given = size_t{0}](std::span<std::byte> buffer) mutable -> Result<size_t> {
      if (given >= limit) return Status(StatusCode::kCancelled, "stopped");
      auto count = inner(buffer.first(std::min(buffer.size(), limit - given)));
      given += *count;
      return count;
    };
    auto source = OpenReader(reader, "pipe", {});
    Status status = source.status();
    if (source.ok()) ReadAll(**source, &status);
    EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.message();
  }
}

// The header claims many samples of one byte each: the demuxer would build an index of them all.
TEST(FfmpegSource, ClaimedCountsDoNotBecomeMemory) {
  SKIP_WITHOUT_TOOLS();
  const Encoded encoded("m4a", "-c:a aac -movflags +faststart");
  ASSERT_TRUE(encoded.ok());
  const Bytes good = test::FileBytes(encoded.path());
  const auto find = [&](std::string_view name) {
    const std::string_view text(reinterpret_cast<const char*>(good.data()), good.size());
    return text.find(name);
  };
  const auto put = [](Bytes* bytes, size_t at, uint32_t value) {
    for (size_t i = 0; i < 4; ++i) (*bytes)[at + i] = static_cast<std::byte>(value >> (24 - 8 * i));
  };
  ASSERT_NE(find("stsz"), std::string_view::npos);
  ASSERT_NE(find("stsc"), std::string_view::npos);
  for (uint32_t count : {50'000'000u, 0x7FFFFFFFu, 0xFFFFFFF0u}) {
    Bytes hostile = good;
    put(&hostile, find("stsz") + 8, 1);
    put(&hostile, find("stsz") + 12, count);
    put(&hostile, find("stsc") + 16, count);
    const auto source = OpenReader(MemoryReader(hostile), "in", {});
    ASSERT_FALSE(source.ok()) << "silence with success";
    test::ExpectOneLine(source.status(), "in");
  }
}

TEST(FfmpegSource, HostileListsOpenNothing) {
  if (!FfmpegBuiltIn()) GTEST_SKIP() << "built without FFmpeg";
  // A binary byte behind the text keeps the text check from refusing these first.
  const std::string tail(1, '\1');
  for (const std::string& text :
       {"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n" + Clip() + "\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '" + Clip() + "'\n",
        std::string("v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n"),
        std::string("<?xml version=\"1.0\"?><MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\"></MPD>"),
        std::string("RTSP/1.0 200 OK\r\n\r\n")}) {
    for (const std::string& content : {text, text + tail, tail + text}) {
      const auto source = OpenReader(MemoryReader(test::FromText(content)), "in", {});
      ASSERT_FALSE(source.ok()) << content;
      test::ExpectOneLine(source.status(), "in");
      const std::string path = test::WriteTemporary("list", test::FromText(content));
      EXPECT_FALSE(OpenFile(path, {}).ok());
      std::filesystem::remove(path);
    }
  }
}

TEST(FfmpegSource, NoiseIsNotAudio) {
  if (!FfmpegBuiltIn()) GTEST_SKIP() << "built without FFmpeg";
  std::mt19937 random(7);
  for (size_t size : {13, 100, 1000, 100000}) {
    for (int round = 0; round < 5; ++round) {
      Bytes noise(size);
      for (std::byte& b : noise) b = static_cast<std::byte>(random());
      noise[0] = std::byte{0x01};
      const auto source = OpenReader(MemoryReader(noise), "noise", {});
      ASSERT_FALSE(source.ok()) << size;
      test::ExpectOneLine(source.status(), "noise");
    }
  }
}

TEST(FfmpegSource, LibraryMessagesStayOffStandardError) {
  SKIP_WITHOUT_TOOLS();
  const Encoded encoded("m4a", "-c:a aac");
  ASSERT_TRUE(encoded.ok());
  Bytes bytes = test::FileBytes(encoded.path());
  bytes.resize(bytes.size() / 2);  // without its moov
  testing::internal::CaptureStderr();
  const std::string path = test::WriteTemporary("cut.m4a", bytes);
  const auto source = OpenFile(path, {});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_FALSE(source.ok());
  EXPECT_NE(source.status().message().find("moov atom not found"), std::string::npos) << source.status().message();
  std::filesystem::remove(path);
}

TEST(FfmpegSource, WithoutFfmpegTheErrorSaysSo) {
  if (FfmpegBuiltIn()) GTEST_SKIP() << "built with FFmpeg";
  const auto source =
      OpenReader(MemoryReader(test::FromText(std::string("OggS\0\2\0\0\0\0\0\0\0\0\0\0", 16))), "a.ogg", {});
  ASSERT_FALSE(source.ok());
  test::ExpectOneLine(source.status(), "a.ogg");
  EXPECT_NE(source.status().message().find("without FFmpeg"), std::string::npos);
}

}  // namespace
}  // namespace voxrt::audio
