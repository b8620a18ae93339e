#include "base/mapped_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace voxrt::base {
namespace {

using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // every death test runs in a fresh process
    folder_ = ::testing::TempDir() + "mapped_file_test." + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/file";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(size_t bytes, char value) const {
    std::ofstream file(path_, std::ios::binary);
    file << std::string(bytes, value);
  }

  std::string folder_;
  std::string path_;
};

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// Bytes that are neither `value` nor zero, and in `*zeros` how many are zero.
size_t CountOther(std::span<const std::byte> bytes, std::byte value, size_t* zeros) {
  size_t other = 0;
  *zeros = 0;
  for (std::byte byte : bytes) {
    if (byte == std::byte{0}) {
      ++*zeros;
    } else if (byte != value) {
      ++other;
    }
  }
  return other;
}

TEST_F(MappedFileTest, ShowsTheBytesOfTheFile) {
  Write(kPage + 7, 'x');
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->bytes().size(), kPage + 7);
  EXPECT_EQ((*file)->bytes().back(), std::byte{'x'});
  EXPECT_EQ((*file)->path(), path_);
  EXPECT_FALSE((*file)->changed());
}

TEST_F(MappedFileTest, AnEmptyFileIsAnEmptySpan) {
  Write(0, 'x');
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->bytes().empty());
  EXPECT_FALSE((*file)->changed());
}

TEST_F(MappedFileTest, RefusesWhatIsNoFileWithoutBlocking) {
  EXPECT_EQ(MappedFile::Open(path_).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(MappedFile::Open(folder_).status().message(), HasSubstr("is a directory, expected a file"));
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(MappedFile::Open(path_).status().message(),
              HasSubstr("is a pipe, expected a file; save its contents to one first"));
  EXPECT_EQ(RefusePipe(path_).message(), MappedFile::Open(path_).status().message());
  EXPECT_TRUE(RefusePipe(folder_).ok() && RefusePipe(path_ + "x").ok());
}

TEST_F(MappedFileTest, TooManyMappingsAreAnErrorAndSlotsComeBack) {
  Write(10, 'x');
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<const MappedFile>> files;
    Status status;
    while (status.ok() && files.size() < 1000) {
      Result<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path_);
      status = file.status();
      if (file.ok()) files.push_back(*file);
    }
    EXPECT_EQ(files.size(), 256u);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  }
}

// Child processes: exit code 0 = as promised.
void ReadTruncatedByThreads(const std::string& path) {
  const std::shared_ptr<const MappedFile> file = *MappedFile::Open(path);
  const std::shared_ptr<const MappedFile> other = *MappedFile::Open(path);
  if (truncate(path.c_str(), static_cast<off_t>(10 * kPage)) != 0) std::_Exit(10);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      size_t zeros = 0;
      const size_t strange = CountOther(file->bytes(), std::byte{'x'}, &zeros);
      if (strange != 0 || zeros != file->bytes().size() - 10 * kPage) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (wrong != 0) std::_Exit(11);
  if (!file->changed()) std::_Exit(12);
  if (other->changed()) std::_Exit(13);  // not read yet
  std::_Exit(0);
}

TEST_F(MappedFileTest, LostPagesReadAsZeroInEveryThreadAndTheFlagIsSet) {
  Write(64 * kPage + 100, 'x');
  EXPECT_EXIT(ReadTruncatedByThreads(path_), ::testing::ExitedWithCode(0), "");
}

void ReadForeignMapping(const std::string& path, bool with_handler) {
  if (with_handler) {
    struct sigaction action = {};
    action.sa_handler = [](int) { std::_Exit(77); };
    sigaction(SIGBUS, &action, nullptr);
  } else {
    std::signal(SIGBUS, SIG_DFL);  // in place of a sanitizer's
  }
  const std::shared_ptr<const MappedFile> file = *MappedFile::Open(path);
  const int fd = open(path.c_str(), O_RDONLY);
  const void* foreign = mmap(nullptr, 4 * kPage, PROT_READ, MAP_SHARED, fd, 0);
  if (foreign == MAP_FAILED || truncate(path.c_str(), 0) != 0) std::_Exit(10);
  const volatile char* bytes = static_cast<const char*>(foreign);
  std::_Exit(bytes[kPage] == 0 ? 11 : 12);  // must not be reached
}

TEST_F(MappedFileTest, AForeignFaultStillEndsTheProcess) {
  Write(4 * kPage, 'x');
  EXPECT_EXIT(ReadForeignMapping(path_, false), ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(MappedFileTest, AForeignFaultGoesToTheHandlerThatWasThereBefore) {
  Write(4 * kPage, 'x');
  EXPECT_EXIT(ReadForeignMapping(path_, true), ::testing::ExitedWithCode(77), "");
}

TEST_F(MappedFileTest, SmallFilesAreReadWholeUpToTheLimit) {
  Write(100, 'y');
  EXPECT_EQ(*ReadSmallFile(path_, 100), std::string(100, 'y'));
  EXPECT_EQ(ReadSmallFile(path_, 99).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadSmallFile(path_ + "x", 99).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadSmallFile(folder_, 99).status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace voxrt::base
