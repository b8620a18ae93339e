#include "backend/cpu/device.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "backend/checks.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/state.h"
#include "backend/cpu/stream.h"
#include "backend/cpu/weights.h"

namespace voxrt::backend::cpu {
namespace {

constexpr size_t kAlignment = 64;

class CpuBuffer : public Buffer {
 public:
  explicit CpuBuffer(const View& view) : Buffer(view) {}
  ~CpuBuffer() override { std::free(view().data); }
};

}  // namespace

CpuDevice::CpuDevice(const DeviceOptions& options)
    : head_scan_(options.head_scan), workers_(std::make_shared<Workers>(options.threads)) {
  info_.backend = "cpu";
  const int threads = workers_->pool.threads();
  info_.description =
      std::string(TargetName()) + " (" + std::to_string(threads) + (threads == 1 ? " thread)" : " threads)");
}

bool CpuDevice::Supports(const quant::Format& format) const { return SupportsFormat(format); }

Result<std::unique_ptr<PreparedLinear>> CpuDevice::Prepare(const LinearSpec& spec) {
  std::lock_guard lock(workers_->mutex);
  VOXRT_ASSIGN_OR_RETURN(std::unique_ptr<CpuLinear> linear, CpuLinear::Make(spec, head_scan_, workers_->pool));
  return std::unique_ptr<PreparedLinear>(std::move(linear));
}

Result<std::unique_ptr<PreparedConv>> CpuDevice::PrepareConv(const ConvSpec& spec) {
  std::lock_guard lock(workers_->mutex);
  VOXRT_ASSIGN_OR_RETURN(std::unique_ptr<CpuConv> conv, CpuConv::Make(spec, workers_->pool));
  return std::unique_ptr<PreparedConv>(std::move(conv));
}

Result<std::unique_ptr<Buffer>> CpuDevice::Allocate(int64_t rows, int64_t cols, quant::DType dtype) {
  VOXRT_RETURN_IF_ERROR(ValidateAllocation(rows, cols, dtype));
  const size_t bytes = static_cast<size_t>(rows * cols) * quant::DTypeBytes(dtype);
  const size_t rounded = (bytes + kAlignment) / kAlignment * kAlignment;  // never 0
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) {
    return Status(StatusCode::kResourceExhausted, "out of memory: a buffer of " + std::to_string(bytes) + " bytes");
  }
  std::memset(data, 0, rounded);
  return std::unique_ptr<Buffer>(std::make_unique<CpuBuffer>(View{data, dtype, rows, cols, cols}));
}

Status CpuDevice::Write(const View& destination, const void* source) {
  const size_t row_bytes = static_cast<size_t>(destination.cols) * quant::DTypeBytes(destination.dtype);
  for (int64_t r = 0; r < destination.rows; ++r) {
    std::memcpy(destination.row_bytes(r), static_cast<const std::byte*>(source) + static_cast<size_t>(r) * row_bytes,
                row_bytes);
  }
  return {};
}

Result<std::unique_ptr<SessionState>> CpuDevice::CreateSessionState(const SessionStateSpec& spec) {
  VOXRT_RETURN_IF_ERROR(Validate(spec));
  return std::unique_ptr<SessionState>(std::make_unique<CpuSessionState>(spec));
}

Result<std::unique_ptr<Stream>> CpuDevice::CreateStream(const StreamSpec& spec) {
  return std::unique_ptr<Stream>(std::make_unique<CpuStream>(spec, workers_));
}

}  // namespace voxrt::backend::cpu

namespace voxrt::backend {

Result<std::unique_ptr<Device>> OpenCpu(const DeviceOptions& options) {
  if (options.ordinal != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "the cpu backend has one device, ordinal 0, not " + std::to_string(options.ordinal));
  }
  if (options.threads < 0 || options.threads > 1024) {
    return Status(StatusCode::kInvalidArgument,
                  "threads must be 0 (one per core) to 1024, not " + std::to_string(options.threads));
  }
  if (!cpu::TargetAvailable()) {
    return Status(StatusCode::kUnavailable, "this processor lacks SSE4.2, AES and PCLMUL: use --backend ref");
  }
  return std::unique_ptr<Device>(std::make_unique<cpu::CpuDevice>(options));
}

}  // namespace voxrt::backend
