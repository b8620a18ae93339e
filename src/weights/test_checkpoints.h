// For tests: checkpoint folders made from the tiny golden one, in either layout, to be damaged at will.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "quant/dtype.h"
#include "weights/huggingface_names.h"

namespace voxrt::weights {

struct StoredTensor {
  std::string name;
  quant::DType dtype = quant::DType::kBF16;
  std::vector<int64_t> shape;
  std::string data;
};

// A temporary folder that vanishes with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string TinyFolder();  // tests/golden/tiny
std::string ReadAll(const std::string& path);
void WriteAll(const std::string& path, const std::string& bytes);

std::vector<StoredTensor> ReadTensors(const std::string& safetensors_path);
void WriteTensors(const std::string& safetensors_path, const std::vector<StoredTensor>& tensors);
StoredTensor* FindTensor(std::vector<StoredTensor>* tensors, const std::string& name);

// The tiny checkpoint, its tensors changed by `edit` first.
void WriteMistralFolder(const TempFolder& folder, const std::function<void(std::vector<StoredTensor>*)>& edit = {});

// The same model as transformers would save it: rows of wq and wk permuted, names with one of the prefixes of all its
// versions.
std::vector<StoredTensor> HuggingFaceTensors(PrefixStyle style);
// config.json, tekken.json and the tensors in `shards` files (1 = model.safetensors, more = an index).
void WriteHuggingFaceFolder(const TempFolder& folder, const std::vector<StoredTensor>& tensors, int shards);

// Undoes the row permutation of a wq or wk tensor (weight or bias) with `heads` heads.
std::string RowsToAdjacent(const std::string& data, int64_t rows, int64_t heads);

}  // namespace voxrt::weights
