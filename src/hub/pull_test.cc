// The downloader against a server on the loopback interface that misbehaves (testdata/bad_hub.py).
#include "hub/pull.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/json.h"
#include "hub/part_file.h"
#include "support/root.h"

namespace voxrt::hub {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr char kWeights[] = "consolidated.safetensors";
constexpr int64_t kWeightBytes = 1000003;

// The server as a child process; it ends when the pipe to its standard input is closed.
class Server {
 public:
  Server() {
    int in[2];
    int out[2];
    if (pipe(in) != 0 || pipe(out) != 0) abort();
    const std::string program = test::Root() + "/src/hub/testdata/bad_hub.py";
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      for (const int fd : {in[0], in[1], out[0], out[1]}) close(fd);
      execl(VOXRT_PYTHON, VOXRT_PYTHON, "-B", program.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    stdin_ = in[1];
    FILE* stream = fdopen(out[0], "r");
    if (fscanf(stream, "%d", &port_) != 1) port_ = 0;
    fclose(stream);
  }
  ~Server() {
    close(stdin_);
    waitpid(pid_, nullptr, 0);
  }
  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }

  std::string Get(const std::string& path) const {
    std::string body;
    auto reply = HttpGet(endpoint() + path, "", {}, [&](const HttpReply&, std::span<const std::byte> bytes) {
      body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return true;
    });
    return reply.ok() ? body : "";
  }
  int64_t BytesServed() const { return base::ParseJson(Get("/stats"))->Find("bytes")->AsInt().value(); }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  int port_ = 0;
};

class PullTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "voxrt_pull_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    options_.directory = directory_ / "model";
    options_.endpoint = server_.endpoint();
    options_.transfer.first_pause_ms = 1;
    options_.transfer.segment_bytes = 200000;
    options_.transfer.connections = 3;
    options_.transfer.max_failures = 4;
  }
  void TearDown() override { fs::remove_all(directory_); }

  Result<PullReport> PullFrom(const std::string& owner) {
    options_.repo = owner + "/x";
    return Pull(options_);
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(fs::path(options_.directory) / name, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void ExpectComplete() const {
    EXPECT_EQ(Read("params.json"), "{\"dim\": 1}");
    const std::string weights = Read(kWeights);
    ASSERT_EQ(static_cast<int64_t>(weights.size()), kWeightBytes);
    for (size_t i = 0; i < weights.size(); i += 997) {
      ASSERT_EQ(static_cast<unsigned char>(weights[i]), (i * 37 + (i >> 8) * 11 + (i >> 16)) & 255) << i;
    }
    EXPECT_FALSE(fs::exists(fs::path(options_.directory) / (std::string(kWeights) + ".part")));
    EXPECT_FALSE(fs::exists(fs::path(options_.directory) / (std::string(kWeights) + ".part.json")));
  }
  void ExpectNoWeights() const { EXPECT_FALSE(fs::exists(fs::path(options_.directory) / kWeights)); }

  Server server_;
  fs::path directory_;
  PullOptions options_;
};

TEST_F(PullTest, FetchesOnlyTheFilesOfACheckpoint) {
  int64_t last_done = 0;
  options_.progress = [&](const std::string& file, int64_t done, int64_t total) {
    if (file != kWeights) return;
    EXPECT_EQ(total, kWeightBytes);
    last_done = done;
  };
  auto report = PullFrom("good");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->commit, "0123456789abcdef0123456789abcdef01234567");
  EXPECT_EQ(report->files.size(), 3u);
  EXPECT_EQ(last_done, kWeightBytes);
  ExpectComplete();
  EXPECT_FALSE(fs::exists(fs::path(options_.directory) / "README.md"));
}

TEST_F(PullTest, CompleteFilesAreNotFetchedAgain) {
  ASSERT_TRUE(PullFrom("good").ok());
  const int64_t served = server_.BytesServed();
  ASSERT_TRUE(PullFrom("good").ok());
  EXPECT_EQ(server_.BytesServed(), served);
}

TEST_F(PullTest, AChangedFileOnDiskIsFetchedAgain) {
  ASSERT_TRUE(PullFrom("good").ok());
  std::fstream(fs::path(options_.directory) / kWeights, std::ios::in | std::ios::out | std::ios::binary)
      .write("xxxx", 4);
  ASSERT_TRUE(PullFrom("good").ok());
  ExpectComplete();
}

TEST_F(PullTest, GoesOnWhereAnInterruptedCallStopped) {
  options_.transfer.connections = 1;
  auto first = PullFrom("stops");
  ASSERT_FALSE(first.ok());
  EXPECT_THAT(first.status().message(), HasSubstr("HF_TOKEN"));
  ExpectNoWeights();
  const int64_t before = server_.BytesServed();
  EXPECT_GE(before, 2 * 200000);
  server_.Get("/allow");
  auto second = PullFrom("stops");
  ASSERT_TRUE(second.ok()) << second.status().message();
  ExpectComplete();
  EXPECT_EQ(server_.BytesServed(), before + kWeightBytes - 2 * 200000) << "bytes that were there were fetched again";
}

TEST_F(PullTest, SurvivesServersThatBreakOffAnswerShortlyOrLimitTheRate) {
  for (const char* owner : {"breaks", "short", "ratelimit", "norange", "norangebreaks", "redirects", "nosizes"}) {
    SCOPED_TRACE(owner);
    auto report = PullFrom(owner);
    EXPECT_TRUE(report.ok()) << report.status().message();
    ExpectComplete();
    fs::remove_all(options_.directory);
  }
}

TEST_F(PullTest, TheTokenGoesToTheHubAndNotToRedirectedHosts) {
  auto refused = PullFrom("token");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("set HF_TOKEN"));
  options_.transfer.http.token = "secret";
  EXPECT_TRUE(PullFrom("token").ok());
  fs::remove_all(options_.directory);
  auto redirected = PullFrom("redirects");
  EXPECT_TRUE(redirected.ok()) << redirected.status().message();
}

TEST_F(PullTest, ATokenThatCannotBeSentIsRefusedWithoutBeingShown) {
  options_.transfer.http.token = "secret\r\nX-Evil: 1";
  auto report = PullFrom("good");
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("token"));
  EXPECT_THAT(report.status().message(), Not(HasSubstr("secret")));
}

TEST_F(PullTest, ADamagedFileIsNotHandedOn) {
  auto report = PullFrom("damaged");
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("damaged"));
  EXPECT_THAT(report.status().message(), HasSubstr("expected"));
  ExpectNoWeights();
  EXPECT_FALSE(fs::exists(fs::path(options_.directory) / (std::string(kWeights) + ".part")));
}

TEST_F(PullTest, ServersThatLieAboutLengthsAreNamed) {
  for (const auto& [owner, words] :
       {std::pair{"liar", "17 bytes on the server"}, std::pair{"long", "more bytes"},
        std::pair{"wrongrange", "another range"}, std::pair{"loop", "redirects"}, std::pair{"dead", "gave up"}}) {
    SCOPED_TRACE(owner);
    auto report = PullFrom(owner);
    ASSERT_FALSE(report.ok());
    EXPECT_THAT(report.status().message(), HasSubstr(words));
    ExpectNoWeights();
    fs::remove_all(options_.directory);
  }
}

TEST_F(PullTest, NothingIsWrittenForHostileOrForeignListings) {
  for (const auto& [owner, words] :
       {std::pair{"evil", "could leave the target folder"}, std::pair{"html", "no repository listing"},
        std::pair{"absent", "check the repository name"}}) {
    auto report = PullFrom(owner);
    ASSERT_FALSE(report.ok());
    EXPECT_THAT(report.status().message(), HasSubstr(words));
    EXPECT_FALSE(fs::exists(options_.directory));
  }
  for (const char* repo : {"", "noslash", "../x/y", "a/..", "a/b/c", "a/b?x=1"}) {
    options_.repo = repo;
    auto report = Pull(options_);
    ASSERT_FALSE(report.ok()) << repo;
    EXPECT_THAT(report.status().message(), HasSubstr("OWNER/NAME"));
  }
}

TEST_F(PullTest, ASecondProcessAtTheSameFileIsToldSo) {
  fs::create_directories(options_.directory);
  auto part = PartFile::Open((fs::path(options_.directory) / kWeights).string(), {"other", 10, 10});
  ASSERT_TRUE(part.ok());
  auto report = PullFrom("good");
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("another process"));
}

TEST_F(PullTest, CancellingKeepsWhatHasArrived) {
  std::atomic<bool> cancelled{false};
  options_.transfer.http.cancelled = &cancelled;
  options_.transfer.connections = 1;
  options_.progress = [&](const std::string& file, int64_t, int64_t) { cancelled = cancelled || file == kWeights; };
  auto report = PullFrom("good");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
  ExpectNoWeights();
  EXPECT_TRUE(fs::exists(fs::path(options_.directory) / (std::string(kWeights) + ".part.json")));
  cancelled = false;
  options_.progress = nullptr;
  EXPECT_TRUE(PullFrom("good").ok());
  ExpectComplete();
}

TEST_F(PullTest, AnUnreachableHubIsNamed) {
  options_.endpoint = "http://127.0.0.1:1";
  auto report = PullFrom("good");
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("HF_ENDPOINT"));
}

}  // namespace
}  // namespace voxrt::hub
