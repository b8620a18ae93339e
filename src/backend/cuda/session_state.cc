#include "backend/cuda/session_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/error.h"
#include "base/check.h"
#include "base/log.h"

namespace voxrt::cuda {

using backend::KvId;
using backend::KvSpec;
using cuda_kernels::kPageTokens;

namespace {

// Left to streams, scratch and the driver when the pools take the rest.
constexpr int64_t kReserveBytes = int64_t{1} << 30;

int RingTokens(const KvSpec& kv) {
  return static_cast<int>((kv.window - 1 + kv.max_rows + kPageTokens - 1) / kPageTokens * kPageTokens);
}

int64_t PageBytes(const KvSpec& kv) {
  const int64_t rows = 2LL * kv.kv_heads * kPageTokens;
  // Rows asked for as fp32 are kept as bf16: they come as bf16 activations, so nothing is lost.
  return kv.dtype == quant::DType::kI8 ? rows * (kv.head_dim + 4) : rows * kv.head_dim * 2;
}

// A full ring of one session, all layers.
int64_t RingBytes(const KvSpec& kv) {
  return kv.layers == 0 ? 0 : RingTokens(kv) / kPageTokens * PageBytes(kv) * kv.layers;
}

Status CheckKv(const KvSpec& kv, std::string_view name) {
  if (kv.layers == 0) return {};
  if (kv.head_dim != 64 && kv.head_dim != 128) {
    return {StatusCode::kUnavailable,
            fmt::format("the CUDA backend has attention for head sizes 64 and 128, the {} of this model has {}", name,
                        kv.head_dim)};
  }
  if (kv.window > (1 << 24) || kv.max_rows > (1 << 24)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} window {} with {} rows per call is out of range", name, kv.window, kv.max_rows)};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<backend::SessionState>> CudaSessionState::Create(const backend::SessionStateSpec& spec) {
  VOXRT_RETURN_IF_ERROR(CheckKv(spec.encoder, "encoder"));
  VOXRT_RETURN_IF_ERROR(CheckKv(spec.decoder, "decoder"));
  std::unique_ptr<CudaSessionState> state(new CudaSessionState(spec));
  VOXRT_RETURN_IF_ERROR(state->Init());
  return std::unique_ptr<backend::SessionState>(std::move(state));
}

CudaSessionState::~CudaSessionState() {
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
}

Status CudaSessionState::Init() {
  VOXRT_RETURN_IF_ERROR(
      ToStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cannot create a CUDA stream"));
  for (int i = 0; i < 2; ++i) {
    const int64_t bytes = std::max<int64_t>(spec_.max_sessions * (2 - i) * spec_.conv_channels[i] * 4, 4);
    VOXRT_ASSIGN_OR_RETURN(tails_[i], DeviceBlock::Allocate(bytes, "convolution tails"));
    VOXRT_RETURN_IF_ERROR(
        ToStatus(cudaMemsetAsync(tails_[i].as<void>(), 0, static_cast<size_t>(bytes), stream_), "cannot clear memory"));
  }
  VOXRT_ASSIGN_OR_RETURN(tokens_, DeviceBlock::Allocate(spec_.max_sessions * 4LL, "tokens"));
  VOXRT_RETURN_IF_ERROR(
      ToStatus(cudaMemsetAsync(tokens_.as<void>(), 0, static_cast<size_t>(spec_.max_sessions) * 4, stream_),
               "cannot clear memory"));

  // Full rings for all sessions, or as many pages as memory allows: sessions grow into their rings page by page.
  size_t free = 0;
  size_t total = 0;
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaMemGetInfo(&free, &total), "cannot ask the GPU for its free memory"));
  const int64_t one = BytesAtMost();
  const int64_t budget = static_cast<int64_t>(free) - std::min<int64_t>(kReserveBytes, static_cast<int64_t>(free) / 8);
  if (one > budget) {
    return {StatusCode::kResourceExhausted,
            fmt::format("one session needs {} of GPU memory for its caches, {} of {} are free: use int8 caches or a "
                        "smaller weight format",
                        FormatBytes(one), FormatBytes(budget), FormatBytes(static_cast<int64_t>(total)))};
  }
  if (one * spec_.max_sessions > budget) {
    Log(LogLevel::kWarning, "caches of {} sessions with full windows need {}, {} are free: room for {} such sessions",
        spec_.max_sessions, FormatBytes(one * spec_.max_sessions), FormatBytes(budget), budget / one);
  }
  const PoolShares shares =
      ShareMemory(budget, spec_.max_sessions, RingBytes(kv(KvId::kEncoder)), RingBytes(kv(KvId::kDecoder)));
  for (const KvId id : {KvId::kEncoder, KvId::kDecoder}) {
    const KvSpec& spec = kv(id);
    const double share = id == KvId::kEncoder ? shares.encoder : shares.decoder;
    const int per_slot = RingTokens(spec) / kPageTokens;
    // Rounded down, but for the pages of one session.
    const int pages = std::max(per_slot, static_cast<int>(share * per_slot * spec_.max_sessions));
    VOXRT_RETURN_IF_ERROR(InitRing(id, spec.layers == 0 ? 1 : 1 + pages));
  }
  return ToStatus(cudaStreamSynchronize(stream_), "cannot clear the caches");
}

Status CudaSessionState::InitRing(KvId id, int pages) {
  const KvSpec& spec = kv(id);
  Ring& ring = rings_[static_cast<size_t>(id)];
  ring.capacity = RingTokens(spec);
  ring.page_bytes = PageBytes(spec);
  const int per_slot = ring.capacity / kPageTokens;
  ring.pool = std::make_unique<PagePool>(spec_.max_sessions, per_slot, pages);
  const bool int8 = spec.dtype == quant::DType::kI8;
  const int64_t tokens = 2LL * spec.kv_heads * kPageTokens * pages;
  ring.layer_bytes = tokens * spec.head_dim * (int8 ? 1 : 2);
  ring.layer_scales = int8 ? tokens : 0;
  VOXRT_ASSIGN_OR_RETURN(ring.data,
                         DeviceBlock::Allocate(std::max<int64_t>(ring.layer_bytes * spec.layers, 256), "K/V caches"));
  // Uninitialised memory may hold NaN, and 0 * NaN is NaN.
  VOXRT_RETURN_IF_ERROR(
      ToStatus(cudaMemsetAsync(ring.data.as<void>(), 0, static_cast<size_t>(ring.data.bytes()), stream_),
               "cannot clear the caches"));
  if (int8) {
    VOXRT_ASSIGN_OR_RETURN(ring.scale, DeviceBlock::Allocate(ring.layer_scales * 4 * spec.layers, "K/V scales"));
    VOXRT_RETURN_IF_ERROR(
        ToStatus(cudaMemsetAsync(ring.scale.as<void>(), 0, static_cast<size_t>(ring.scale.bytes()), stream_),
                 "cannot clear the caches"));
  }
  VOXRT_ASSIGN_OR_RETURN(ring.table,
                         DeviceBlock::Allocate(std::max(1LL * spec_.max_sessions * per_slot * 4, 4LL), "page tables"));
  return ToStatus(cudaMemsetAsync(ring.table.as<void>(), 0, static_cast<size_t>(ring.table.bytes()), stream_),
                  "cannot clear the caches");
}

void CudaSessionState::Clear(int slot) {
  VOXRT_CHECK(slot >= 0 && slot < spec_.max_sessions);
  for (int i = 0; i < 2; ++i) {
    const int64_t floats = (2 - i) * spec_.conv_channels[i];
    if (floats > 0)
      static_cast<void>(cudaMemsetAsync(tail(i) + slot * floats, 0, static_cast<size_t>(floats) * 4, stream_));
  }
  static_cast<void>(cudaStreamSynchronize(stream_));
}

int CudaSessionState::pages_for(KvId id, int64_t end) const {
  const int64_t rows = std::min<int64_t>(end, rings_[static_cast<size_t>(id)].capacity);
  return static_cast<int>((rows + kPageTokens - 1) / kPageTokens);
}

Status CudaSessionState::Reserve(int slot, KvId id, int64_t end) {
  VOXRT_CHECK(slot >= 0 && slot < spec_.max_sessions);
  Ring& ring = rings_[static_cast<size_t>(id)];
  const std::lock_guard<std::mutex> lock(mutex_);
  int begin = 0;
  int grown = 0;
  if (!ring.pool->Grow(slot, pages_for(id, end), &begin, &grown)) {
    return {StatusCode::kResourceExhausted,
            fmt::format("no GPU memory is left for this session's {} cache: {} pages of {} needed, {} free; end other "
                        "sessions or start with fewer",
                        id == KvId::kEncoder ? "encoder" : "decoder", pages_for(id, end) - ring.pool->pages_of(slot),
                        FormatBytes(ring.page_bytes * kv(id).layers), ring.pool->free_pages())};
  }
  if (grown == begin) return {};
  const int per_slot = ring.pool->pages_per_slot();
  VOXRT_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(ring.table.as<int32_t>() + static_cast<int64_t>(slot) * per_slot + begin,
                               ring.pool->row(slot) + begin, static_cast<size_t>(grown - begin) * 4,
                               cudaMemcpyHostToDevice, stream_),
               "cannot write a page table"));
  return ToStatus(cudaStreamSynchronize(stream_), "cannot write a page table");
}

void CudaSessionState::Release(int slot) {
  VOXRT_CHECK(slot >= 0 && slot < spec_.max_sessions);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Ring& ring : rings_) ring.pool->Release(slot);
}

int64_t CudaSessionState::BytesNow(int slot) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t bytes = (2 * spec_.conv_channels[0] + spec_.conv_channels[1]) * 4;
  for (const KvId id : {KvId::kEncoder, KvId::kDecoder}) {
    const Ring& ring = rings_[static_cast<size_t>(id)];
    bytes += ring.pool->pages_of(slot) * ring.page_bytes * kv(id).layers;
  }
  return bytes;
}

int64_t CudaSessionState::BytesAtMost() const {
  int64_t bytes = (2 * spec_.conv_channels[0] + spec_.conv_channels[1]) * 4;
  return bytes + RingBytes(kv(KvId::kEncoder)) + RingBytes(kv(KvId::kDecoder));
}

cuda_kernels::CacheRef CudaSessionState::cache(KvId id, int layer) const {
  const KvSpec& spec = kv(id);
  const Ring& ring = rings_[static_cast<size_t>(id)];
  VOXRT_CHECK(layer >= 0 && layer < spec.layers);
  cuda_kernels::CacheRef ref;
  ref.data = ring.data.as<std::byte>() + layer * ring.layer_bytes;
  if (ring.layer_scales > 0) ref.scale = ring.scale.as<float>() + layer * ring.layer_scales;
  ref.pages = ring.table.as<int32_t>();
  ref.pages_per_slot = ring.pool->pages_per_slot();
  ref.capacity = ring.capacity;
  ref.kv_heads = spec.kv_heads;
  ref.head_dim = spec.head_dim;
  return ref;
}

}  // namespace voxrt::cuda
