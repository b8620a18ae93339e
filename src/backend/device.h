// Device: opens hardware, owns memory, prepares weights. Thread-safe and immutable after Open.
// This header, stream.h, linear.h, view.h, batch_plan.h and compose.h are the whole contract between model and
// backends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/linear.h"
#include "backend/view.h"
#include "base/status.h"
#include "quant/dtype.h"
#include "quant/format.h"

namespace voxrt::backend {

class Stream;

struct DeviceOptions {
  int ordinal = 0;  // which device of its kind
  int threads = 0;  // CPU backends: 0 = one per core
  // Find the best token of a float output head by an 8-bit scan and exact products of the rows that it cannot exclude:
  // the same tokens for less reading, and memory for the 8-bit copy. Backends without it refuse.
  bool head_scan = false;
};

struct DeviceInfo {
  std::string backend;       // "ref", "cpu", "cuda"
  std::string description;   // "AVX-512 (2 threads)", "NVIDIA H200, 132 SMs"
  int64_t memory_bytes = 0;  // device memory in all, 0 = host memory
  int64_t memory_free_bytes = 0;
  int64_t memory_bytes_per_s = 0;  // nominal bandwidth of device memory, 0 = unknown
  // Element type of activations between operations (q/k/v, attention output, FFN hidden, adapter hidden). The residual
  // stream and logits are always F32.
  quant::DType activation_dtype = quant::DType::kF32;
  quant::DType default_kv_dtype = quant::DType::kF32;
  // Rows of one session for which a decoder pass is worth its cost when all but the first are guessed.
  int guess_rows = 4;
};

// Owned device memory of one rank-2 array; zero at creation; freed with the object.
class Buffer {
 public:
  explicit Buffer(View view) : view_(view) {}
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  const View& view() const { return view_; }

 private:
  View view_;
};

enum class KvId : uint8_t { kEncoder = 0, kDecoder = 1 };

struct KvSpec {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;    // a row sees itself and window - 1 earlier rows
  int64_t max_rows = 1;  // most rows of one session in one call that must not evict each other (speculation included);
                         // ring capacity is at least window - 1 + max_rows
  quant::DType dtype = quant::DType::kF32;  // kF32, kBF16 or kI8 (scale per row and head). Attention sees K and V as
                                            // stored, its own call's rows included
};

struct SessionStateSpec {
  int max_sessions = 1;
  KvSpec encoder;
  KvSpec decoder;
  int64_t conv_channels[2] = {0, 0};  // input channels of conv 0 (tail of 2 rows) and conv 1 (tail of 1 row)
};

// All device state of all sessions: K/V rings, convolution tails, last token. Slots are numbered by the caller.
// Not thread-safe against operations of a Stream on the same slot.
class SessionState {
 public:
  virtual ~SessionState() = default;
  // Back to the state before the first sample (counters are the caller's; caches need no clearing, conv tails become
  // 0).
  virtual void Clear(int slot) = 0;
  // Makes room for rows with index < end (rings stop growing at capacity). kResourceExhausted when memory is out.
  virtual Status Reserve(int slot, KvId kv, int64_t end) = 0;
  // Gives the slot's memory back.
  virtual void Release(int slot) = 0;
  virtual int64_t BytesNow(int slot) const = 0;  // device bytes held by the slot
  virtual int64_t BytesAtMost() const = 0;       // of one slot, rings full
};

struct StreamSpec {
  int64_t max_encoder_rows = 4;  // most rows of PlanId::kEncoder in one call
  int64_t max_decoder_rows = 1;
  SessionState* state = nullptr;  // the state its operations work on; outlives the stream
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  // Can this device multiply with such weights? Asked before anything is prepared.
  virtual bool Supports(const quant::Format& format) const = 0;
  virtual Result<std::unique_ptr<PreparedLinear>> Prepare(const LinearSpec& spec) = 0;
  virtual Result<std::unique_ptr<PreparedConv>> PrepareConv(const ConvSpec& spec) = 0;

  virtual Result<std::unique_ptr<Buffer>> Allocate(int64_t rows, int64_t cols, quant::DType dtype) = 0;
  // Copies host rows (dense, the buffer's dtype) into the buffer's rows [row_begin, row_begin + rows); blocking, for
  // load time.
  virtual Status Write(const View& destination, const void* source) = 0;
  virtual Result<std::unique_ptr<SessionState>> CreateSessionState(const SessionStateSpec& spec) = 0;
  virtual Result<std::unique_ptr<Stream>> CreateStream(const StreamSpec& spec) = 0;
};

}  // namespace voxrt::backend
