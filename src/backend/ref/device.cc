// The ref backend's device: host memory, weights used where they lie.
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "backend/checks.h"
#include "backend/ref/conv.h"
#include "backend/ref/linear.h"
#include "backend/ref/ref.h"
#include "backend/ref/state.h"
#include "backend/ref/stream.h"
#include "base/check.h"

namespace voxrt::backend {
namespace {

using quant::DType;
using quant::FormatKind;

// Owns the memory its view points to.
class RefBuffer final : public Buffer {
 public:
  RefBuffer(View view, std::vector<std::byte> memory) : Buffer(view), memory_(std::move(memory)) {}

 private:
  std::vector<std::byte> memory_;
};

class RefDevice final : public Device {
 public:
  RefDevice() { info_ = {.backend = "ref", .description = "scalar reference (1 thread)"}; }

  const DeviceInfo& info() const override { return info_; }

  bool Supports(const quant::Format& format) const override {
    const bool grouped = format.group == 32 || format.group == 64 || format.group == 128 || format.group == 256;
    switch (format.kind) {
      case FormatKind::kFloat:
        return !format.int8_activations &&
               (format.dtype == DType::kF32 || format.dtype == DType::kF16 || format.dtype == DType::kBF16);
      case FormatKind::kInt4:
        return grouped;
      case FormatKind::kInt4Tile:
        return grouped && !format.int8_activations;
      case FormatKind::kInt8:
        return grouped || format.group == 0;
    }
    return false;
  }

  Result<std::unique_ptr<PreparedLinear>> Prepare(const LinearSpec& spec) override {
    VOXRT_RETURN_IF_ERROR(Validate(spec));
    for (const LinearBlock& block : spec.blocks) {
      if (!Supports(block.weight.format)) {
        return Status(StatusCode::kInvalidModel,
                      spec.name + ": backend ref has no product with " + FormatName(block.weight.format));
      }
    }
    return std::unique_ptr<PreparedLinear>(std::make_unique<RefLinear>(spec));
  }

  Result<std::unique_ptr<PreparedConv>> PrepareConv(const ConvSpec& spec) override {
    VOXRT_RETURN_IF_ERROR(Validate(spec));
    return std::unique_ptr<PreparedConv>(std::make_unique<RefConv>(spec));
  }

  Result<std::unique_ptr<Buffer>> Allocate(int64_t rows, int64_t cols, DType dtype) override {
    VOXRT_RETURN_IF_ERROR(ValidateAllocation(rows, cols, dtype));
    try {
      std::vector<std::byte> memory(static_cast<size_t>(rows * cols) * quant::DTypeBytes(dtype));
      const View view{.data = memory.data(), .dtype = dtype, .rows = rows, .cols = cols, .stride = cols};
      return std::unique_ptr<Buffer>(std::make_unique<RefBuffer>(view, std::move(memory)));
    } catch (const std::bad_alloc&) {
      return Status(StatusCode::kResourceExhausted,
                    "no memory for a buffer [" + std::to_string(rows) + ", " + std::to_string(cols) + "]");
    }
  }

  Status Write(const View& destination, const void* source) override {
    const size_t row_bytes = static_cast<size_t>(destination.cols) * quant::DTypeBytes(destination.dtype);
    for (int64_t r = 0; r < destination.rows; ++r) {
      std::memcpy(destination.row_bytes(r), static_cast<const std::byte*>(source) + static_cast<size_t>(r) * row_bytes,
                  row_bytes);
    }
    return Status();
  }

  Result<std::unique_ptr<SessionState>> CreateSessionState(const SessionStateSpec& spec) override {
    VOXRT_RETURN_IF_ERROR(Validate(spec));
    try {
      return std::unique_ptr<SessionState>(std::make_unique<RefSessionState>(spec));
    } catch (const std::bad_alloc&) {
      return Status(StatusCode::kResourceExhausted, "no memory for " + std::to_string(spec.max_sessions) + " sessions");
    }
  }

  Result<std::unique_ptr<Stream>> CreateStream(const StreamSpec& spec) override {
    auto* state = dynamic_cast<RefSessionState*>(spec.state);
    VOXRT_CHECK(state != nullptr);  // a stream works on session state of its own device
    return std::unique_ptr<Stream>(std::make_unique<RefStream>(spec, state));
  }

 private:
  DeviceInfo info_;
};

}  // namespace

Result<std::unique_ptr<Device>> OpenRef(const DeviceOptions& options) {
  if (options.ordinal != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "backend ref has one device, expected ordinal 0, found " + std::to_string(options.ordinal));
  }
  if (options.head_scan) {
    return Status(StatusCode::kInvalidArgument, "backend ref has no head scan; use backend cpu or leave it out");
  }
  return std::unique_ptr<Device>(std::make_unique<RefDevice>());
}

}  // namespace voxrt::backend
