// What one GPU can do, measured before anything is planned from it: read and copy bandwidth, L2 bandwidth, mma.sync
// peak, and the cost of one dependent phase as a graph node (c_graph), as a graph node with a programmatic edge (c_pdl)
// and as a phase of a persistent kernel with a grid barrier (c_barrier). A phase reads a 12 KB vector that the phase
// before wrote, reduces it in every block and writes its share. Prints one JSON object.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "backend/cuda/kernels/ptx.cuh"

namespace {

using voxrt::cuda_kernels::LaunchDependents;
using voxrt::cuda_kernels::Mma;
using voxrt::cuda_kernels::WaitForPrevious;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK(call) Check(call, #call)

constexpr int kVector = 3072;
constexpr int kPhases = 300;

__device__ float ReduceVector(const float* x) {
  __shared__ float parts[8];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < kVector; i += 256) sum += __ldcg(x + i);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (float part : parts) sum += part;
  __syncthreads();
  return sum;
}

__device__ void Work(const float* in, float* out, int blocks) {
  const float mean = ReduceVector(in) / kVector;
  const int share = (kVector + blocks - 1) / blocks, at = blockIdx.x * share + threadIdx.x;
  if (threadIdx.x < share && at < kVector) out[at] = mean + 1.0f;
}

__global__ void PhaseKernel(const float* in, float* out) {
  LaunchDependents();
  WaitForPrevious();
  Work(in, out, gridDim.x);
}

__global__ void PersistentKernel(float* a, float* b, unsigned* barrier, int phases) {
  for (int phase = 0; phase < phases; ++phase) {
    Work(phase % 2 ? b : a, phase % 2 ? a : b, gridDim.x);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(barrier, 1u);
      const unsigned target = static_cast<unsigned>(phase + 1) * gridDim.x;
      while (*reinterpret_cast<volatile unsigned*>(barrier) < target) {
      }
      __threadfence();
    }
    __syncthreads();
  }
}

__global__ void ReadKernel(const uint4* data, size_t count, unsigned* out) {
  unsigned sum = 0;
  size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  const size_t step = gridDim.x * static_cast<size_t>(blockDim.x);
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = __ldcg(data + i), b = __ldcg(data + i + step), c = __ldcg(data + i + 2 * step),
                d = __ldcg(data + i + 3 * step);
    sum += a.x ^ b.y ^ c.z ^ d.w;
  }
  if (sum == 0x12345678u) *out = sum;
}

__global__ void MmaKernel(float* out) {
  float acc[8][4] = {};
  const uint32_t a = 0x3f803f80u + threadIdx.x, b = 0x3f003f00u + threadIdx.x;
  for (int i = 0; i < 4096; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) Mma(acc[j], a, a ^ 1, a ^ 2, a ^ 3, b, b ^ j);
  }
  float sum = 0.0f;
  for (auto& r : acc) sum += r[0] + r[1] + r[2] + r[3];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

template <typename F>
double MedianMs(cudaStream_t stream, F&& run, int count = 15) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < count + 3; ++i) {
    CHECK(cudaEventRecord(begin, stream));
    run();
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 3) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double PhaseMicroseconds(cudaStream_t stream, float* a, float* b, int blocks, bool programmatic) {
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kPhases; ++i) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(256);
    config.dynamicSmemBytes = 100 * 1024;
    config.stream = stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = programmatic && i > 0 ? 1 : 0;
    CHECK(cudaLaunchKernelEx(&config, PhaseKernel, static_cast<const float*>(i % 2 ? b : a), i % 2 ? a : b));
  }
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  const double ms = MedianMs(stream, [&] { CHECK(cudaGraphLaunch(exec, stream)); });
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return ms * 1000 / kPhases;
}

}  // namespace

int main() {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    std::puts("{\"skipped\": \"no CUDA device\"}");
    return 0;
  }
  int driver = 0;
  CHECK(cudaDriverGetVersion(&driver));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  const int sms = properties.multiProcessorCount;
  const size_t bytes = std::min<size_t>(size_t{4} << 30, properties.totalGlobalMem / 4);
  char *big, *other;
  unsigned* word;
  CHECK(cudaMalloc(&big, bytes));
  CHECK(cudaMalloc(&other, bytes));
  CHECK(cudaMalloc(&word, 1 << 20));
  CHECK(cudaMemset(big, 0x5a, bytes));
  CHECK(cudaMemset(word, 0, 1 << 20));
  std::printf("{\n \"gpu\": \"%s\", \"sms\": %d, \"l2_bytes\": %d, \"driver\": %d,\n", properties.name, sms,
              properties.l2CacheSize, driver);
  const double copy =
      MedianMs(stream, [&] { CHECK(cudaMemcpyAsync(other, big, bytes, cudaMemcpyDeviceToDevice, stream)); });
  const double read = MedianMs(
      stream, [&] { ReadKernel<<<sms * 8, 512, 0, stream>>>(reinterpret_cast<uint4*>(big), bytes / 16, word); });
  const size_t small = size_t{24} << 20;
  const double l2 = MedianMs(stream, [&] {
    for (int i = 0; i < 20; ++i)
      ReadKernel<<<sms * 4, 512, 0, stream>>>(reinterpret_cast<uint4*>(big), small / 16, word);
  });
  float* out = reinterpret_cast<float*>(other);
  const double mma = MedianMs(stream, [&] { MmaKernel<<<sms * 2, 512, 0, stream>>>(out); });
  std::printf(" \"copy_TBps\": %.3f, \"read_TBps\": %.3f, \"l2_read_TBps\": %.3f, \"mma_sync_TFLOPs\": %.1f,\n",
              2.0 * bytes / copy / 1e9, bytes / read / 1e9, 20.0 * small / l2 / 1e9,
              sms * 2.0 * 16 * 4096.0 * 8 * 4096 / mma / 1e9);
  float *a = reinterpret_cast<float*>(big), *b = a + kVector;
  CHECK(cudaMemset(big, 0, 2 * kVector * sizeof(float)));
  CHECK(cudaFuncSetAttribute(PhaseKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024));
  for (const int blocks : {sms, 80}) {
    std::printf(" \"c_graph_us_%d\": %.3f, \"c_pdl_us_%d\": %.3f,\n", blocks,
                PhaseMicroseconds(stream, a, b, blocks, false), blocks,
                properties.major >= 9 ? PhaseMicroseconds(stream, a, b, blocks, true) : 0.0);
  }
  const double persistent = MedianMs(stream, [&] {
    CHECK(cudaMemsetAsync(word, 0, 4, stream));
    int phases = kPhases;
    void* arguments[] = {&a, &b, &word, &phases};
    CHECK(cudaLaunchCooperativeKernel(PersistentKernel, dim3(static_cast<unsigned>(sms)), dim3(256), arguments, 0,
                                      stream));
  });
  std::printf(" \"c_barrier_us\": %.3f\n}\n", persistent * 1000 / kPhases);
  return 0;
}
