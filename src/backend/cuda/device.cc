#include "backend/cuda/device.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backend/checks.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/error.h"
#include "backend/cuda/prepared.h"
#include "backend/cuda/session_state.h"
#include "backend/cuda/stream.h"
#include "base/check.h"

namespace voxrt::backend {

Result<std::unique_ptr<Device>> OpenCuda(const DeviceOptions& options) {
  if (options.head_scan) {
    return Status(StatusCode::kInvalidArgument, "backend cuda has no head scan; use backend cpu or leave it out");
  }
  return cuda::CudaDevice::Open(options);
}

}  // namespace voxrt::backend

namespace voxrt::cuda {

using backend::LinearRole;
using cuda_kernels::RepackParams;
using cuda_kernels::WeightFormat;
using cuda_kernels::WeightRef;
using quant::DType;
using quant::FormatKind;

namespace {

constexpr int64_t kStagingBytes = int64_t{32} << 20;

class CudaBuffer final : public backend::Buffer {
 public:
  CudaBuffer(backend::View view, DeviceBlock block) : Buffer(view), block_(std::move(block)) {}

 private:
  DeviceBlock block_;
};

WeightFormat DeviceFormat(const quant::Format& format) {
  switch (format.kind) {
    case FormatKind::kFloat:
      return WeightFormat::kBf16;
    case FormatKind::kInt4:
    case FormatKind::kInt4Tile:
      return format.group % 128 == 0 ? WeightFormat::kInt4G128 : WeightFormat::kInt4G32;
    case FormatKind::kInt8:
      return format.group == 0 ? WeightFormat::kInt8Row : WeightFormat::kInt8G32;
  }
  return WeightFormat::kBf16;
}

int FloatSource(DType dtype) { return dtype == DType::kF32 ? 0 : dtype == DType::kBF16 ? 1 : 2; }

// Clock times bus width, two transfers a clock; 0 where the driver does not tell them.
int64_t NominalBytesPerSecond(int ordinal) {
  int clock_khz = 0;
  int bus_bits = 0;
  if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, ordinal) != cudaSuccess ||
      cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, ordinal) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return int64_t{clock_khz} * 1000 * bus_bits * 2 / 8;
}

}  // namespace

Result<std::unique_ptr<backend::Device>> CudaDevice::Open(const backend::DeviceOptions& options) {
  std::unique_ptr<CudaDevice> device(new CudaDevice);
  VOXRT_RETURN_IF_ERROR(device->Init(options));
  return std::unique_ptr<backend::Device>(std::move(device));
}

CudaDevice::~CudaDevice() {
  if (load_stream_ == nullptr) return;
  static_cast<void>(cudaSetDevice(ordinal_));
  static_cast<void>(cudaStreamSynchronize(load_stream_));
  for (Staging& staging : staging_) {
    if (staging.free != nullptr) static_cast<void>(cudaEventDestroy(staging.free));
  }
  static_cast<void>(cudaStreamDestroy(load_stream_));
}

Status CudaDevice::Init(const backend::DeviceOptions& options) {
  // The runtime opens the driver by itself; looking first gives a clearer message where there is none.
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver == nullptr) {
    return {StatusCode::kUnavailable,
            "no NVIDIA driver on this machine (libcuda.so.1 not found): install it, or use --backend cpu"};
  }
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    return {StatusCode::kUnavailable, fmt::format("no usable NVIDIA GPU: {}; use --backend cpu",
                                                  error == cudaSuccess ? "none found" : cudaGetErrorString(error))};
  }
  if (options.ordinal < 0 || options.ordinal >= count) {
    return {StatusCode::kInvalidArgument,
            fmt::format("GPU {} does not exist: this machine has {} (0 to {})", options.ordinal, count, count - 1)};
  }
  ordinal_ = options.ordinal;
  cudaDeviceProp properties{};
  VOXRT_RETURN_IF_ERROR(
      ToStatus(cudaGetDeviceProperties(&properties, ordinal_), "cannot ask the GPU for its properties"));
  if (properties.major < 8) {
    return {StatusCode::kUnavailable,
            fmt::format("{} has compute capability {}.{}, 8.0 or later is needed; use --backend cpu", properties.name,
                        properties.major, properties.minor)};
  }
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaSetDevice(ordinal_), "cannot use the GPU"));
  VOXRT_RETURN_IF_ERROR(
      ToStatus(cudaStreamCreateWithFlags(&load_stream_, cudaStreamNonBlocking), "cannot create a CUDA stream"));
  size_t free = 0;
  size_t total = 0;
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaMemGetInfo(&free, &total), "cannot ask the GPU for its free memory"));
  limits_.sm_count = properties.multiProcessorCount;
  limits_.shared_limit =
      static_cast<int>(properties.sharedMemPerBlockOptin) - 1024;  // static shared memory of the kernels
  if (properties.major == 9) {
    VOXRT_RETURN_IF_ERROR(
        ToStatus(cuda_kernels::CountClusters(&limits_.clusters), "cannot ask the GPU how many clusters it runs"));
    if (limits_.clusters < 1) {
      return {StatusCode::kUnavailable,
              fmt::format("{} with {} SMs has no room for a cluster of four blocks; use a larger slice of it",
                          properties.name, limits_.sm_count)};
    }
  }
  programmatic_ = properties.major >= 9;
  info_.backend = "cuda";
  info_.description = fmt::format("{}, {} SMs", properties.name, limits_.sm_count);
  info_.memory_bytes = static_cast<int64_t>(total);
  info_.memory_free_bytes = static_cast<int64_t>(free);
  info_.memory_bytes_per_s = NominalBytesPerSecond(ordinal_);
  info_.activation_dtype = DType::kBF16;
  info_.default_kv_dtype = DType::kBF16;
  info_.guess_rows = 2;  // a pass of 2 / 4 / 8 rows costs 1.07 / 1.56 / 2.03 of one (docs/performance.md)
  return {};
}

Status CudaDevice::UseDevice() const { return ToStatus(cudaSetDevice(ordinal_), "cannot use the GPU"); }

bool CudaDevice::Supports(const quant::Format& format) const {
  if (format.int8_activations) return false;  // activations stay bf16 here
  switch (format.kind) {
    case FormatKind::kFloat:
      return format.dtype == DType::kBF16;
    case FormatKind::kInt4:
    case FormatKind::kInt4Tile:
      return format.group == 32 || format.group == 64 || format.group == 128 || format.group == 256;
    case FormatKind::kInt8:
      return format.group == 0 || format.group % 32 == 0;
  }
  return false;
}

Result<WeightRef> CudaDevice::NewWeight(const std::string& name, WeightFormat format, int64_t device_rows, int64_t rows,
                                        int64_t cols) {
  WeightRef weight;
  weight.format = format;
  weight.rows = static_cast<int32_t>(rows);
  weight.cols = static_cast<int32_t>(cols);
  weight.tiles = static_cast<int32_t>((device_rows + cuda_kernels::kTileRows - 1) / cuda_kernels::kTileRows);
  weight.units = static_cast<int32_t>((cols + cuda_kernels::kUnitCols - 1) / cuda_kernels::kUnitCols);
  const int64_t bytes = cuda_kernels::WeightBytes(format, weight.tiles, weight.units);
  VOXRT_ASSIGN_OR_RETURN(void* data, weights_.Allocate(bytes, name));
  weight.data = static_cast<const uint8_t*>(data);
  // Rows and inputs that only fill units up must be zero.
  if (device_rows % cuda_kernels::kTileRows != 0 || cols % cuda_kernels::kUnitCols != 0) {
    VOXRT_RETURN_IF_ERROR(
        ToStatus(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), load_stream_), "cannot clear memory"));
  }
  return weight;
}

Result<const float*> CudaDevice::NewBias(const std::vector<float>& bias) {
  const auto bytes = static_cast<int64_t>(bias.size() * sizeof(float));
  VOXRT_ASSIGN_OR_RETURN(void* data, weights_.Allocate(bytes, "a bias"));
  // From pageable memory: the runtime has read it when this returns.
  VOXRT_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(data, bias.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice, load_stream_),
               "cannot upload a bias"));
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(load_stream_), "cannot upload a bias"));
  return static_cast<const float*>(data);
}

Status CudaDevice::Upload(const std::string& name, RepackParams params, const void* data, int64_t row_bytes,
                          int row_step) {
  const int64_t piece_rows = std::max<int64_t>(kStagingBytes / row_bytes / row_step * row_step, row_step);
  for (int64_t row = 0; row < params.total_rows; row += piece_rows) {
    const int64_t rows = std::min<int64_t>(piece_rows, params.total_rows - row);
    const int64_t bytes = (rows + row_step - 1) / row_step * row_step * row_bytes;
    Staging& staging = staging_[next_staging_];
    next_staging_ ^= 1;
    if (staging.free == nullptr) {
      VOXRT_RETURN_IF_ERROR(
          ToStatus(cudaEventCreateWithFlags(&staging.free, cudaEventDisableTiming), "cannot create a CUDA event"));
    } else {
      VOXRT_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(staging.free), "cannot upload " + name));
    }
    if (staging.host.bytes() < bytes) {
      VOXRT_ASSIGN_OR_RETURN(staging.host, PinnedBlock::Allocate(std::max(bytes, kStagingBytes)));
      VOXRT_ASSIGN_OR_RETURN(staging.device, DeviceBlock::Allocate(std::max(bytes, kStagingBytes), "upload staging"));
    }
    std::memcpy(staging.host.data(), static_cast<const std::byte*>(data) + row * row_bytes, static_cast<size_t>(bytes));
    VOXRT_RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(staging.device.as<void>(), staging.host.data(),
                                                   static_cast<size_t>(bytes), cudaMemcpyHostToDevice, load_stream_),
                                   "cannot upload " + name));
    params.data = staging.device.as<void>();
    params.first_row = static_cast<int32_t>(row);
    params.rows = static_cast<int32_t>(rows);
    const cuda_kernels::LaunchContext context{.stream = load_stream_};
    VOXRT_RETURN_IF_ERROR(ToStatus(cuda_kernels::LaunchRepack(params, context), "cannot repack " + name));
    VOXRT_RETURN_IF_ERROR(ToStatus(cudaEventRecord(staging.free, load_stream_), "cannot upload " + name));
  }
  return {};
}

Status CudaDevice::UploadScales(const std::string& name, const void* scales, int64_t bytes) {
  if (scales_.bytes() < bytes) {
    VOXRT_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(load_stream_), "cannot upload " + name));
    VOXRT_ASSIGN_OR_RETURN(scales_, DeviceBlock::Allocate(std::max(bytes, kStagingBytes / 2), "upload staging"));
  }
  return ToStatus(
      cudaMemcpyAsync(scales_.as<void>(), scales, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, load_stream_),
      "cannot upload the scales of " + name);
}

Status CudaDevice::PrepareBlock(const backend::LinearSpec& spec, size_t block, int64_t row_base,
                                const WeightRef& weight) {
  const quant::HostLinear& source = spec.blocks[block].weight;
  RepackParams params;
  params.weight = weight;
  params.out = const_cast<uint8_t*>(weight.data);
  params.total_rows = static_cast<int32_t>(source.rows);
  params.cols = static_cast<int32_t>(source.cols);
  params.group = source.format.group;
  params.row_base = static_cast<int32_t>(row_base);
  params.interleave = spec.role == LinearRole::kGateUp ? static_cast<int32_t>(block) + 1 : 0;
  int64_t row_bytes = 0;
  int64_t scale_bytes = 0;
  int row_step = 1;
  switch (source.format.kind) {
    case FormatKind::kFloat:
      params.source = FloatSource(source.format.dtype);
      row_bytes = source.cols * static_cast<int64_t>(quant::DTypeBytes(source.format.dtype));
      break;
    case FormatKind::kInt4:
      params.source = 3;
      row_bytes = source.cols / 2;
      scale_bytes = source.rows * (source.cols / source.format.group) * 2;
      break;
    case FormatKind::kInt4Tile:
      params.source = 4;
      row_bytes = source.cols / 2;  // eight rows share 512-byte blocks
      row_step = 8;
      scale_bytes = source.rows * (source.cols / source.format.group) * 4;
      break;
    case FormatKind::kInt8:
      params.source = 5;
      row_bytes = source.cols;
      scale_bytes = source.rows * (source.format.group == 0 ? 1 : source.cols / source.format.group) * 2;
      break;
  }
  if (scale_bytes > 0) {
    VOXRT_RETURN_IF_ERROR(UploadScales(spec.name, source.scale, scale_bytes));
    params.scale = scales_.as<uint16_t>();
  }
  return Upload(spec.name, params, source.data, row_bytes, row_step);
}

Result<std::unique_ptr<backend::PreparedLinear>> CudaDevice::Prepare(const backend::LinearSpec& spec) {
  VOXRT_RETURN_IF_ERROR(backend::Validate(spec));
  const std::lock_guard<std::mutex> lock(mutex_);
  VOXRT_RETURN_IF_ERROR(UseDevice());
  const quant::HostLinear& first = spec.blocks[0].weight;
  int64_t rows = 0;
  bool has_bias = false;
  for (const backend::LinearBlock& block : spec.blocks) {
    if (!Supports(block.weight.format)) {
      return Status(StatusCode::kUnavailable,
                    fmt::format("{}: the CUDA backend has no kernel for {}; export the model as bf16, 4w or 8w",
                                spec.name, quant::FormatName(block.weight.format)));
    }
    if (DeviceFormat(block.weight.format) != DeviceFormat(first.format)) {
      return Status(StatusCode::kUnavailable,
                    fmt::format("{}: parts of one weight are stored as {} and {}; export them alike", spec.name,
                                quant::FormatName(first.format), quant::FormatName(block.weight.format)));
    }
    rows += block.weight.rows;
    has_bias = has_bias || !block.bias.empty();
  }
  const bool pair = spec.role == LinearRole::kGateUp;
  const int64_t device_rows = pair ? (first.rows + 7) / 8 * 16 : rows;
  VOXRT_ASSIGN_OR_RETURN(WeightRef weight,
                         NewWeight(spec.name, DeviceFormat(first.format), device_rows, rows, first.cols));
  std::vector<float> bias(has_bias ? static_cast<size_t>(weight.tiles) * cuda_kernels::kTileRows : 0, 0.0f);
  int64_t row_base = 0;
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    VOXRT_RETURN_IF_ERROR(PrepareBlock(spec, i, row_base, weight));
    for (size_t r = 0; r < spec.blocks[i].bias.size(); ++r) {
      const size_t at = pair ? r / 8 * 16 + r % 8 + i * 8 : static_cast<size_t>(row_base) + r;
      bias[at] = spec.blocks[i].bias[r];
    }
    row_base += spec.blocks[i].weight.rows;
  }
  if (has_bias) {
    VOXRT_ASSIGN_OR_RETURN(weight.bias, NewBias(bias));
  }
  if (streams_exist_)
    VOXRT_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(load_stream_), "cannot upload " + spec.name));
  return std::unique_ptr<backend::PreparedLinear>(std::make_unique<CudaLinear>(spec, rows, first.cols, weight));
}

Result<std::unique_ptr<backend::PreparedConv>> CudaDevice::PrepareConv(const backend::ConvSpec& spec) {
  VOXRT_RETURN_IF_ERROR(backend::Validate(spec));
  const std::lock_guard<std::mutex> lock(mutex_);
  VOXRT_RETURN_IF_ERROR(UseDevice());
  const int64_t cols = spec.in_channels * 3;
  VOXRT_ASSIGN_OR_RETURN(WeightRef weight,
                         NewWeight(spec.name, WeightFormat::kBf16, spec.out_channels, spec.out_channels, cols));
  RepackParams params;
  params.weight = weight;
  params.out = const_cast<uint8_t*>(weight.data);
  params.total_rows = static_cast<int32_t>(spec.out_channels);
  params.cols = static_cast<int32_t>(cols);
  params.conv_channels = static_cast<int32_t>(spec.in_channels);
  params.source = FloatSource(spec.dtype);
  VOXRT_RETURN_IF_ERROR(
      Upload(spec.name, params, spec.weight, cols * static_cast<int64_t>(quant::DTypeBytes(spec.dtype)), 1));
  if (!spec.bias.empty()) {
    std::vector<float> bias(static_cast<size_t>(weight.tiles) * cuda_kernels::kTileRows, 0.0f);
    std::copy(spec.bias.begin(), spec.bias.end(), bias.begin());
    VOXRT_ASSIGN_OR_RETURN(weight.bias, NewBias(bias));
  }
  if (streams_exist_)
    VOXRT_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(load_stream_), "cannot upload " + spec.name));
  return std::unique_ptr<backend::PreparedConv>(std::make_unique<CudaConv>(spec, weight));
}

Result<std::unique_ptr<backend::Buffer>> CudaDevice::Allocate(int64_t rows, int64_t cols, DType dtype) {
  VOXRT_RETURN_IF_ERROR(backend::ValidateAllocation(rows, cols, dtype));
  const std::lock_guard<std::mutex> lock(mutex_);
  VOXRT_RETURN_IF_ERROR(UseDevice());
  const int64_t bytes = rows * cols * static_cast<int64_t>(quant::DTypeBytes(dtype));
  VOXRT_ASSIGN_OR_RETURN(DeviceBlock block, DeviceBlock::Allocate(bytes, "a buffer"));
  VOXRT_RETURN_IF_ERROR(
      ToStatus(cudaMemsetAsync(block.as<void>(), 0, static_cast<size_t>(bytes), load_stream_), "cannot clear memory"));
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(load_stream_), "cannot clear memory"));
  const backend::View view{block.as<void>(), dtype, rows, cols, cols};
  return std::unique_ptr<backend::Buffer>(std::make_unique<CudaBuffer>(view, std::move(block)));
}

Status CudaDevice::Write(const backend::View& destination, const void* source) {
  const std::lock_guard<std::mutex> lock(mutex_);
  VOXRT_RETURN_IF_ERROR(UseDevice());
  const size_t element = quant::DTypeBytes(destination.dtype);
  const size_t width = static_cast<size_t>(destination.cols) * element;
  VOXRT_RETURN_IF_ERROR(
      ToStatus(cudaMemcpy2DAsync(destination.data, static_cast<size_t>(destination.stride) * element, source, width,
                                 width, static_cast<size_t>(destination.rows), cudaMemcpyHostToDevice, load_stream_),
               "cannot write a buffer"));
  return ToStatus(cudaStreamSynchronize(load_stream_), "cannot write a buffer");
}

Result<std::unique_ptr<backend::SessionState>> CudaDevice::CreateSessionState(const backend::SessionStateSpec& spec) {
  VOXRT_RETURN_IF_ERROR(backend::Validate(spec));
  const std::lock_guard<std::mutex> lock(mutex_);
  VOXRT_RETURN_IF_ERROR(UseDevice());
  return CudaSessionState::Create(spec);
}

Result<std::unique_ptr<backend::Stream>> CudaDevice::CreateStream(const backend::StreamSpec& spec) {
  const std::lock_guard<std::mutex> lock(mutex_);
  VOXRT_RETURN_IF_ERROR(UseDevice());
  // Weights are complete, and their staging memory is free for caches.
  VOXRT_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(load_stream_), "cannot finish loading"));
  streams_exist_ = true;
  return CudaStream::Create(*this, spec);
}

}  // namespace voxrt::cuda
