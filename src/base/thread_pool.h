// A persistent pool of worker threads that all run one job at a time. Workers spin for at most 50 us after a job, then
// park.
#pragma once

#include <memory>

#include "base/function_ref.h"

namespace voxrt::base {

class ThreadPool {
 public:
  // `threads` >= 1 counts the calling thread; 0 means one per available core.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls job(worker, workers) once for every worker, 0 <= worker < workers == threads(), and returns when all have
  // returned. The calling thread is worker 0, and takes the parts of workers that have not begun when it is done: a
  // worker that the system does not run delays nobody. So parts may run one after another, and must not wait for each
  // other. One caller at a time.
  void Run(FunctionRef<void(int worker, int workers)> job);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace voxrt::base
