// The CPU device: plain host memory and one thread pool that its streams share.
#pragma once

#include <memory>
#include <mutex>

#include "backend/device.h"
#include "base/thread_pool.h"

namespace voxrt::backend::cpu {

// The pool and the lock that lets streams of several threads take turns.
struct Workers {
  explicit Workers(int threads) : pool(threads) {}
  base::ThreadPool pool;
  std::mutex mutex;
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options);

  const DeviceInfo& info() const override { return info_; }
  bool Supports(const quant::Format& format) const override;
  Result<std::unique_ptr<PreparedLinear>> Prepare(const LinearSpec& spec) override;
  Result<std::unique_ptr<PreparedConv>> PrepareConv(const ConvSpec& spec) override;
  Result<std::unique_ptr<Buffer>> Allocate(int64_t rows, int64_t cols, quant::DType dtype) override;
  Status Write(const View& destination, const void* source) override;
  Result<std::unique_ptr<SessionState>> CreateSessionState(const SessionStateSpec& spec) override;
  Result<std::unique_ptr<Stream>> CreateStream(const StreamSpec& spec) override;

 private:
  DeviceInfo info_;
  bool head_scan_;
  std::shared_ptr<Workers> workers_;
};

}  // namespace voxrt::backend::cpu
