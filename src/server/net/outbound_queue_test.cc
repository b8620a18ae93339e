#include "server/net/outbound_queue.h"

#include <gtest/gtest.h>

namespace voxrt::server {
namespace {

Frame Delta(const char* key, std::string text) {
  return {.text = "<", .delta = std::move(text), .suffix = ">", .merge_key = key};
}
Frame Message(std::string text) { return {.text = std::move(text), .delta = {}, .suffix = {}, .merge_key = {}}; }

TEST(OutboundQueue, PendingDeltasOfOneItemAreMergedInOrder) {
  OutboundQueue queue;
  queue.Push(Message("first"));
  queue.Push(Delta("a", "x"));
  queue.Push(Delta("a", "y"));
  queue.Push(Delta("b", "z"));
  queue.Push(Message("final"));
  queue.Push(Delta("b", "w"));
  std::string all;
  while (const auto message = queue.Pop(false)) all += *message + " ";
  EXPECT_EQ(all, "first <xy> <z> final <w> ");
  EXPECT_EQ(queue.bytes(), 0);
}

TEST(OutboundQueue, HeldDeltasWaitForSomethingElse) {
  OutboundQueue queue;
  queue.Push(Delta("a", "x"));
  EXPECT_EQ(queue.Pop(true), std::nullopt);
  EXPECT_FALSE(queue.empty());
  queue.Push(Message("final"));
  EXPECT_EQ(queue.Pop(true), "<x>");
  EXPECT_EQ(queue.Pop(true), "final");
}

TEST(OutboundQueue, MessagesStayBelowOneMebibyte) {
  OutboundQueue queue;
  for (int i = 0; i < 3000; ++i) queue.Push(Delta("a", std::string(1000, '\x01')));
  size_t total = 0;
  while (const auto message = queue.Pop(false)) {
    EXPECT_LT(message->size(), 1U << 20);
    total += message->size();
  }
  EXPECT_GT(total, 3000U * 1000U * 6U);
}

}  // namespace
}  // namespace voxrt::server
