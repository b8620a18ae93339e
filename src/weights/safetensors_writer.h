// SafetensorsWriter: writes one safetensors file of any size with little memory. The tensors are announced first, then
// their bytes come in pieces, in any order and from any thread. Readers see the whole file or none: everything goes to
// PATH.part, which is synced and renamed by Finish.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "quant/dtype.h"

namespace voxrt::weights {

struct TensorPlan {
  std::string name;
  quant::DType dtype = quant::DType::kBF16;
  std::vector<int64_t> shape;

  int64_t bytes() const;
};

struct WriterOptions {
  std::vector<std::pair<std::string, std::string>> metadata;  // written in this order
  bool sync = true;  // false: survives a crash of the program, not of the machine
};

class SafetensorsWriter {
 public:
  // Tensors lie in the file in the order given, without holes. The whole size is reserved at once, so that a full disk
  // is noticed here. Fails when another process is writing the same path.
  static Result<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path, std::vector<TensorPlan> tensors,
                                                           const WriterOptions& options);
  // Without Finish nothing remains.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Bytes [offset, offset + bytes.size()) of tensor `index`. Thread-safe; every byte must be written exactly once.
  Status Write(size_t index, int64_t offset, std::span<const std::byte> bytes);
  // Replaces `from`, which must occur once in the metadata, by a text of the same length: for hashes that are known
  // only at the end. Neither may need escaping in JSON.
  Status ReplaceInHeader(std::string_view from, std::string_view to);
  // Makes the file appear under its name. All bytes must have been written.
  Status Finish();

  const std::vector<TensorPlan>& tensors() const { return tensors_; }
  int64_t file_bytes() const { return file_bytes_; }

 private:
  SafetensorsWriter() = default;
  Status Begin(const WriterOptions& options);

  std::string path_;
  std::string header_;  // with its length in front
  std::vector<TensorPlan> tensors_;
  std::vector<int64_t> offsets_;  // of each tensor in the file
  int64_t file_bytes_ = 0;
  int64_t data_bytes_ = 0;
  std::atomic<int64_t> written_{0};
  bool sync_ = true;
  bool finished_ = false;
  int fd_ = -1;
};

}  // namespace voxrt::weights
