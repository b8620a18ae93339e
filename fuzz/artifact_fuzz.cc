// A whole model file as Checkpoint::Open sees it: header, artifact metadata, table, scales. Through an anonymous file,
// because models are mapped.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "weights/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("artifact", MFD_CLOEXEC);
  if (fd < 0) return 0;
  if (write(fd, data, size) == static_cast<ssize_t>(size)) {
    auto opened = voxrt::weights::Checkpoint::Open("/proc/self/fd/" + std::to_string(fd), {.threads = 1});
    if (opened.ok()) {
      for (const auto& [name, tensor] : (*opened)->tensors()) {
        if (tensor.bytes > 0)
          (void)static_cast<volatile const uint8_t*>(static_cast<const void*>(tensor.data))[tensor.bytes - 1];
      }
    }
  }
  close(fd);
  return 0;
}
