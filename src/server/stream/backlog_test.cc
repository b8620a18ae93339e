#include "server/stream/backlog.h"

#include <gtest/gtest.h>

namespace voxrt::server {
namespace {

std::shared_ptr<BacklogBudget> Budget() { return std::make_shared<BacklogBudget>(); }
std::string Numbered(int from, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>(from + i);
  return text;
}

TEST(Backlog, BytesComeOutInOrderThroughMemoryAndFile) {
  for (const int64_t memory : {0, 10, 1000}) {
    const auto budget = Budget();
    Backlog backlog({.memory_bytes = memory, .total_bytes = 1 << 20, .directory = "/tmp"}, budget);
    std::string in, out;
    for (int i = 0; i < 40; ++i) {
      const std::string piece = Numbered(i, 7);
      ASSERT_TRUE(backlog.Append(piece).ok());
      in += piece;
      ASSERT_TRUE(backlog.Read(i % 3 == 0 ? 5 : 0, &out).ok());
    }
    EXPECT_EQ(backlog.bytes(), static_cast<int64_t>(in.size() - out.size()));
    EXPECT_EQ(budget->used, backlog.bytes());
    ASSERT_TRUE(backlog.Read(100000, &out).ok());
    EXPECT_EQ(out, in) << memory;
    EXPECT_EQ(budget->used, 0);
  }
}

TEST(Backlog, DropTailTakesTheNewestWhereverTheyAre) {
  for (const int64_t memory : {0, 10, 1000}) {
    Backlog backlog({.memory_bytes = memory, .total_bytes = 1 << 20, .directory = "/tmp"}, Budget());
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(backlog.Append(Numbered('a' + 4 * i, 4)).ok());
    std::string out;
    ASSERT_TRUE(backlog.Read(3, &out).ok());
    backlog.DropTail(9);
    ASSERT_TRUE(backlog.Append("XY").ok());
    ASSERT_TRUE(backlog.Read(100, &out).ok());
    EXPECT_EQ(out, "abcdefghijkXY") << memory;
    backlog.DropTail(5);
    EXPECT_EQ(backlog.bytes(), 0);
  }
}

TEST(Backlog, FullUntilOneMebibyteBelowTheLimit) {
  Backlog backlog({.memory_bytes = 1 << 20, .total_bytes = 3 << 20, .directory = "/tmp"}, Budget());
  ASSERT_TRUE(backlog.Append(std::string(3 << 20, 'x')).ok());
  EXPECT_FALSE(backlog.full());
  ASSERT_TRUE(backlog.Append("y").ok());
  EXPECT_TRUE(backlog.full());
  std::string out;
  ASSERT_TRUE(backlog.Read(1000, &out).ok());
  EXPECT_TRUE(backlog.full());
  ASSERT_TRUE(backlog.Read(1 << 20, &out).ok());
  EXPECT_FALSE(backlog.full());
}

TEST(Backlog, TheGlobalBoundHoldsAcrossSessionsButNeverStopsAnEmptyOne) {
  const auto budget = Budget();
  budget->limit = 2 << 20;
  Backlog first({}, budget), second({}, budget);
  ASSERT_TRUE(first.Append(std::string((2 << 20) + 1, 'x')).ok());
  EXPECT_TRUE(first.full());
  EXPECT_FALSE(second.full());
  ASSERT_TRUE(second.Append("x").ok());
  EXPECT_TRUE(second.full());
}

TEST(Backlog, AMissingDirectoryIsAnErrorAndKeepsWhatWasThere) {
  Backlog backlog({.memory_bytes = 4, .total_bytes = 1 << 20, .directory = "/nonexistent/voxrt"}, Budget());
  ASSERT_TRUE(backlog.Append("abcd").ok());
  EXPECT_EQ(backlog.Append("e").code(), StatusCode::kIo);
  std::string out;
  ASSERT_TRUE(backlog.Read(10, &out).ok());
  EXPECT_EQ(out, "abcd");
}

TEST(Backlog, AFullDiskIsAnError) {
  Backlog backlog({.memory_bytes = 0, .total_bytes = 1 << 20, .directory = "/proc"}, Budget());
  EXPECT_EQ(backlog.Append("e").code(), StatusCode::kIo);
}

}  // namespace
}  // namespace voxrt::server
