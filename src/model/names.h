// Canonical tensor names (Mistral's, docs/model.md 9.2).
#pragma once

#include <string>

namespace voxrt::model {

inline std::string ModuleName(const std::string& rest) { return "mm_streams_embeddings.embedding_module." + rest; }
inline std::string EncoderName(const std::string& rest) { return ModuleName("whisper_encoder." + rest); }
inline std::string EncoderLayerName(int layer, const std::string& rest) {
  return EncoderName("transformer.layers." + std::to_string(layer) + "." + rest);
}
inline std::string DecoderLayerName(int layer, const std::string& rest) {
  return "layers." + std::to_string(layer) + "." + rest;
}

}  // namespace voxrt::model
