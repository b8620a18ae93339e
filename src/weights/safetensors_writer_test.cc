#include "weights/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "weights/checkpoint_source.h"
#include "weights/test_checkpoints.h"

namespace voxrt::weights {
namespace {

using quant::DType;
using ::testing::HasSubstr;

std::vector<TensorPlan> TwoTensors() { return {{"a", DType::kBF16, {2, 3}}, {"b", DType::kU8, {5}}}; }

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::unique_ptr<SafetensorsWriter> Create(const std::string& path, std::vector<TensorPlan> tensors,
                                          const WriterOptions& options = {}) {
  Result<std::unique_ptr<SafetensorsWriter>> writer = SafetensorsWriter::Create(path, std::move(tensors), options);
  EXPECT_TRUE(writer.ok()) << writer.status().message();
  return writer.ok() ? *std::move(writer) : nullptr;
}

void WriteTwo(SafetensorsWriter* writer) {
  ASSERT_TRUE(writer->Write(1, 3, Bytes("45")).ok());  // any order, any pieces
  ASSERT_TRUE(writer->Write(0, 0, Bytes("abcdefghijkl")).ok());
  ASSERT_TRUE(writer->Write(1, 0, Bytes("123")).ok());
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TempFolder folder;
  const std::string path = folder / "x.safetensors";
  WriterOptions options;
  options.metadata = {{"z", "1"}, {"a", "\"quoted\"\n日本"}};
  auto writer = Create(path, TwoTensors(), options);
  WriteTwo(writer.get());
  ASSERT_TRUE(writer->Finish().ok());
  const Result<SafetensorsFile> file = OpenSafetensors(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->header.metadata, options.metadata);
  EXPECT_EQ(file->header.data_offset % 8, 0);
  const std::vector<StoredTensor> tensors = ReadTensors(path);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].data, "abcdefghijkl");
  EXPECT_EQ(tensors[1].data, "12345");
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(path)), writer->file_bytes());
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST(SafetensorsWriter, TheSameInputGivesTheSameBytes) {
  const TempFolder folder;
  for (const char* name : {"1", "2"}) {
    auto writer = Create(folder / name, TwoTensors());
    WriteTwo(writer.get());
    ASSERT_TRUE(writer->Finish().ok());
  }
  EXPECT_EQ(ReadAll(folder / "1"), ReadAll(folder / "2"));
}

TEST(SafetensorsWriter, ManyThreadsMayWrite) {
  const TempFolder folder;
  std::vector<TensorPlan> plans;
  for (int i = 0; i < 64; ++i) plans.push_back({"t" + std::to_string(i), DType::kU8, {1000}});
  auto writer = Create(folder / "x", plans);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < 64; i += 4) {
        const std::string half(500, static_cast<char>('A' + i % 26));
        EXPECT_TRUE(writer->Write(i, 500, Bytes(half)).ok());
        EXPECT_TRUE(writer->Write(i, 0, Bytes(half)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(writer->Finish().ok());
  const std::vector<StoredTensor> tensors = ReadTensors(folder / "x");
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(tensors[i].data, std::string(1000, static_cast<char>('A' + i % 26)));
}

TEST(SafetensorsWriter, WithoutFinishNothingRemainsAndAnOldFileStays) {
  const TempFolder folder;
  WriteAll(folder / "x", "old");
  {
    auto writer = Create(folder / "x", TwoTensors());
    WriteTwo(writer.get());
  }
  EXPECT_EQ(ReadAll(folder / "x"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "x.part"));
}

TEST(SafetensorsWriter, AKilledWriterLeavesNoHalfFileAndTheNextTakesOver) {
  const TempFolder folder;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto writer = SafetensorsWriter::Create(folder / "x", TwoTensors(), {});
    if (!writer.ok() || !(*writer)->Write(0, 0, Bytes("abcdefghijkl")).ok()) std::_Exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  EXPECT_TRUE(std::filesystem::exists(folder / "x.part"));
  auto writer = Create(folder / "x", TwoTensors());
  WriteTwo(writer.get());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_TRUE(OpenSafetensors(folder / "x").ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "x.part"));
}

TEST(SafetensorsWriter, TwoWritersOfOneFileAreRefused) {
  const TempFolder folder;
  auto first = Create(folder / "x", TwoTensors());
  EXPECT_THAT(SafetensorsWriter::Create(folder / "x", TwoTensors(), {}).status().message(),
              HasSubstr("is being written by another process"));
  WriteTwo(first.get());
  EXPECT_TRUE(first->Finish().ok());
}

TEST(SafetensorsWriter, AFolderThatIsNotThereIsAnError) {
  const TempFolder folder;
  EXPECT_EQ(SafetensorsWriter::Create(folder / "absent/x", TwoTensors(), {}).status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace voxrt::weights
