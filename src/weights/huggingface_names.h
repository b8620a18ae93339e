// Names of Hugging Face checkpoints -> canonical (Mistral) names: docs/model.md 9.3.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace voxrt::weights {

// The canonical name of a tensor as transformers saves it, whatever stands before the part's name; the output head is
// kHeadName. Empty when the name is none of this model's.
std::optional<std::string> CanonicalName(std::string_view huggingface_name);

// The reverse, as transformers saves it today or did before; canonical names only (kHeadName included).
enum class PrefixStyle : uint8_t {
  kOld,      // audio_tower., language_model.model.
  kNew,      // model.audio_tower., model.language_model.
  kDoubled,  // model.model.audio_tower., model.model.language_model.model.
};
std::string HuggingFaceName(std::string_view canonical_name, PrefixStyle style);

// Constants that some versions of transformers saved and that are computed here instead.
bool IsRecomputedConstant(std::string_view huggingface_name);

}  // namespace voxrt::weights
