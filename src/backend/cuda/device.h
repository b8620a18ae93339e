// CudaDevice: one GPU. Uploads and repacks weights through pinned double buffers; makes buffers, session state and
// streams.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/memory.h"
#include "backend/device.h"

namespace voxrt::cuda {

class CudaDevice final : public backend::Device {
 public:
  static Result<std::unique_ptr<backend::Device>> Open(const backend::DeviceOptions& options);
  ~CudaDevice() override;

  const backend::DeviceInfo& info() const override { return info_; }
  bool Supports(const quant::Format& format) const override;
  Result<std::unique_ptr<backend::PreparedLinear>> Prepare(const backend::LinearSpec& spec) override;
  Result<std::unique_ptr<backend::PreparedConv>> PrepareConv(const backend::ConvSpec& spec) override;
  Result<std::unique_ptr<backend::Buffer>> Allocate(int64_t rows, int64_t cols, quant::DType dtype) override;
  Status Write(const backend::View& destination, const void* source) override;
  Result<std::unique_ptr<backend::SessionState>> CreateSessionState(const backend::SessionStateSpec& spec) override;
  Result<std::unique_ptr<backend::Stream>> CreateStream(const backend::StreamSpec& spec) override;

  int ordinal() const { return ordinal_; }
  const cuda_kernels::DeviceLimits& limits() const { return limits_; }
  bool programmatic() const { return programmatic_; }  // has programmatic dependent launch

 private:
  struct Staging {  // one of two: filled by the host while the other travels
    PinnedBlock host;
    DeviceBlock device;
    cudaEvent_t free = nullptr;
  };

  CudaDevice() = default;
  Status Init(const backend::DeviceOptions& options);
  Status UseDevice() const;
  // Uploads `rows` rows of `row_bytes` in pieces and repacks each; `params` describes the whole source.
  Status Upload(const std::string& name, cuda_kernels::RepackParams params, const void* data, int64_t row_bytes,
                int row_step);
  Status UploadScales(const std::string& name, const void* scales, int64_t bytes);
  Result<cuda_kernels::WeightRef> NewWeight(const std::string& name, cuda_kernels::WeightFormat format,
                                            int64_t device_rows, int64_t rows, int64_t cols);
  Result<const float*> NewBias(const std::vector<float>& bias);
  Status PrepareBlock(const backend::LinearSpec& spec, size_t block, int64_t row_base,
                      const cuda_kernels::WeightRef& weight);

  backend::DeviceInfo info_;
  int ordinal_ = 0;
  cuda_kernels::DeviceLimits limits_;
  bool programmatic_ = false;

  std::mutex mutex_;  // of everything below
  cudaStream_t load_stream_ = nullptr;
  Staging staging_[2];
  int next_staging_ = 0;
  DeviceBlock scales_;  // of the source weight being repacked
  Slabs weights_;
  bool streams_exist_ = false;
};

}  // namespace voxrt::cuda
