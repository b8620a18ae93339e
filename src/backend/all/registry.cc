// The array of compiled-in backends: the only place that names them all. Order = order of preference in --help, ref
// last.
#include "backend/registry.h"

#include <string>

#ifdef VOXRT_HAVE_CPU
#include "backend/cpu/cpu.h"
#endif
#ifdef VOXRT_HAVE_CUDA
#include "backend/cuda/cuda.h"
#endif
#include "backend/ref/ref.h"

namespace voxrt::backend {
namespace {

constexpr BackendEntry kBackends[] = {
#ifdef VOXRT_HAVE_CPU
    {"cpu", "SIMD on all cores, instruction set chosen at start", OpenCpu},
#endif
#ifdef VOXRT_HAVE_CUDA
    {"cuda", "NVIDIA GPU", OpenCuda},
#endif
    {"ref", "scalar reference, one thread: slow, for comparison", OpenRef},
};

}  // namespace

std::span<const BackendEntry> CompiledBackends() { return kBackends; }

Result<std::unique_ptr<Device>> OpenDevice(std::string_view name, const DeviceOptions& options) {
  std::string known;
  for (const BackendEntry& entry : kBackends) {
    if (entry.name == name) return entry.open(options);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  return Status(StatusCode::kInvalidArgument,
                "backend \"" + std::string(name) + "\" is not in this build, expected one of: " + known);
}

}  // namespace voxrt::backend
