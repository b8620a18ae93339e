#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace voxrt::base {
namespace {

TEST(ThreadPool, EveryPartRunsOnceInEveryJob) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    std::vector<int> counts(static_cast<size_t>(threads), 0);  // a part has one owner in a job, jobs follow each other
    for (int job = 1; job <= 2000; ++job) {
      pool.Run([&](int worker, int workers) {
        EXPECT_EQ(workers, threads);
        ++counts[static_cast<size_t>(worker)];
      });
      for (int count : counts) ASSERT_EQ(count, job);
    }
  }
}

TEST(ThreadPool, WhatPartsWroteIsSeenAfterRun) {
  ThreadPool pool(4);
  std::vector<int> values(4, 0);
  for (int job = 0; job < 500; ++job) {
    pool.Run([&](int worker, int) { values[static_cast<size_t>(worker)] += worker + 1; });
  }
  EXPECT_EQ(values, (std::vector<int>{500, 1000, 1500, 2000}));
}

TEST(ThreadPool, TheFirstPartIsTheCallers) {
  ThreadPool pool(3);
  for (int job = 0; job < 200; ++job) {
    std::atomic<int> done{0};
    std::thread::id first;
    pool.Run([&](int worker, int) {
      if (worker == 0) first = std::this_thread::get_id();
      ++done;
    });
    EXPECT_EQ(done, 3);
    EXPECT_EQ(first, std::this_thread::get_id());  // part 0 is the caller's
  }
}

TEST(ThreadPool, ManyPoolsStartAndStop) {
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(3);
    std::atomic<int> done{0};
    if (i % 2 == 0) pool.Run([&](int, int) { ++done; });
    EXPECT_EQ(done, i % 2 == 0 ? 3 : 0);
  }
}

}  // namespace
}  // namespace voxrt::base
