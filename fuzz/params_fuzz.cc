// Both configuration parsers on any bytes: an accepted configuration has bounded sizes whose products fit, its tensor
// list can be made, and it is written and read back as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "weights/model_config.h"
#include "weights/tensor_table.h"

namespace weights = voxrt::weights;

namespace {

void CheckAccepted(weights::ModelConfig config) {
  if (config.ada_dim == 0) config.ada_dim = 32;
  const voxrt::Result<weights::ModelConfig> again = weights::ParseMistralParams(weights::WriteMistralParams(config));
  if (!again.ok() || !(*again == config)) abort();
  int64_t total = 0;
  for (const weights::TensorSpec& spec : weights::ExpectedTensors(config)) {
    int64_t elements = 1;
    for (const int64_t size : spec.shape) {
      if (size < 1 || __builtin_mul_overflow(elements, size, &elements)) abort();
    }
    if (__builtin_add_overflow(total, elements, &total)) abort();
  }
  if (weights::ValidateTable(config, {}, {}).ok()) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto mistral = weights::ParseMistralParams(text);
  if (mistral.ok()) CheckAccepted(*mistral);
  const auto hugging_face = weights::ParseHuggingFaceConfig(text, "");
  if (hugging_face.ok()) CheckAccepted(*hugging_face);
  (void)weights::ParseHuggingFaceConfig(R"({"model_type":"voxtral_realtime","audio_config":{},"text_config":{}})",
                                        text);
  return 0;
}
