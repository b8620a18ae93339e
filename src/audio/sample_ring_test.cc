// SampleRing: order, wrapping, counted drops, waking, and a writer and a reader at full speed.
#include "audio/sample_ring.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace voxrt::audio {
namespace {

using std::chrono::milliseconds;

std::vector<float> Numbers(size_t first, size_t count) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), static_cast<float>(first));
  return numbers;
}

TEST(SampleRing, KeepsOrderAcrossItsEnd) {
  SampleRing ring(8);
  std::vector<float> out(8);
  size_t next = 0;
  for (size_t round = 0; round < 50; ++round) {
    const size_t count = 1 + round % 7;
    ring.Write(Numbers(next, count));
    EXPECT_EQ(ring.available(), count);
    ASSERT_EQ(ring.Read(out), count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], static_cast<float>(next + i));
    next += count;
  }
  EXPECT_EQ(ring.dropped_samples(), 0u);
}

TEST(SampleRing, DropsTheNewestAndCounts) {
  SampleRing ring(8);
  ring.Write(Numbers(0, 6));
  ring.Write(Numbers(6, 5));
  ring.Write(Numbers(11, 3));
  EXPECT_EQ(ring.dropped_samples(), 6u);
  std::vector<float> out(20);
  ASSERT_EQ(ring.Read(out), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(out[i], static_cast<float>(i));
  EXPECT_EQ(ring.Read(out), 0u);
}

TEST(SampleRing, CapacityIsAtLeastWhatWasAskedFor) {
  for (size_t wanted : {0, 1, 7, 8, 9, 80000}) EXPECT_GE(SampleRing(wanted).capacity(), std::max<size_t>(wanted, 1));
}

TEST(SampleRing, WaitEndsByTimeByCloseAndBySamples) {
  SampleRing ring(8);
  EXPECT_FALSE(ring.Wait(milliseconds(1)));
  ring.Write(Numbers(0, 1));
  EXPECT_TRUE(ring.Wait(milliseconds(0)));
  ring.Close();
  EXPECT_TRUE(ring.Wait(milliseconds(0))) << "what was written before is still there";
  std::vector<float> out(8);
  EXPECT_EQ(ring.Read(out), 1u);
  EXPECT_FALSE(ring.Wait(milliseconds(60'000)));
  EXPECT_TRUE(ring.closed());
}

TEST(SampleRing, AWriterWakesAWaitingReaderAndNothingIsLost) {
  constexpr size_t kTotal = 200'000;
  SampleRing ring(512);
  std::thread writer([&] {
    for (size_t next = 0; next < kTotal;) {
      const size_t count = std::min({kTotal - next, 1 + next % 37, ring.capacity() - ring.available()});
      if (count == 0) {
        std::this_thread::yield();
        continue;
      }
      ring.Write(Numbers(next, count));
      next += count;
    }
    ring.Close();
  });
  std::vector<float> out(100);
  size_t next = 0;
  while (ring.Wait(milliseconds(60'000))) {
    const size_t count = ring.Read(out);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], static_cast<float>(next + i));
    next += count;
  }
  writer.join();
  EXPECT_EQ(next, kTotal);
  EXPECT_EQ(ring.dropped_samples(), 0u);
}

}  // namespace
}  // namespace voxrt::audio
