#include "weights/huggingface_names.h"

#include <algorithm>
#include <cctype>

#include "weights/checkpoint.h"

namespace voxrt::weights {
namespace {

constexpr std::string_view kAudioTower = "audio_tower.";
constexpr std::string_view kLanguageModel = "language_model.";
constexpr std::string_view kProjector = "multi_modal_projector.";
constexpr std::string_view kModule = "mm_streams_embeddings.embedding_module.";

struct Pair {
  std::string_view from;
  std::string_view to;
};

// Inside a layer, both stacks.
constexpr Pair kLayerParts[] = {
    {"self_attn.q_proj.", "attention.wq."}, {"self_attn.k_proj.", "attention.wk."},
    {"self_attn.v_proj.", "attention.wv."}, {"self_attn.o_proj.", "attention.wo."},
    {"mlp.gate_proj.", "feed_forward.w1."}, {"mlp.down_proj.", "feed_forward.w2."},
    {"mlp.up_proj.", "feed_forward.w3."},
};
constexpr Pair kEncoderParts[] = {
    {"self_attn_layer_norm.", "attention_norm."},
    {"final_layer_norm.", "ffn_norm."},  // not the final norm of the stack
};
constexpr Pair kDecoderParts[] = {
    {"input_layernorm.", "attention_norm."},
    {"post_attention_layernorm.", "ffn_norm."},
    {"ada_rms_norm.linear1.", "ada_rms_norm_t_cond.0."},
    {"ada_rms_norm.linear2.", "ada_rms_norm_t_cond.2."},
};
constexpr Pair kEncoderRest[] = {
    {"embedder.conv1.", "whisper_encoder.conv_layers.0.conv."},
    {"embedder.conv2.", "whisper_encoder.conv_layers.1.conv."},
    {"norm.", "whisper_encoder.transformer.norm."},
};
constexpr Pair kProjectorParts[] = {
    {"linear_1.", "audio_language_projection.0."},
    {"linear_2.", "audio_language_projection.2."},
};

bool Take(std::string_view* name, std::string_view prefix) {
  if (!name->starts_with(prefix)) return false;
  name->remove_prefix(prefix.size());
  return true;
}

// `name` with the first `to` that occurs in it replaced by its `from`.
template <size_t kCount>
bool ReplaceBack(std::string* name, const Pair (&pairs)[kCount]) {
  for (const Pair& pair : pairs) {
    const size_t at = name->find(pair.to);
    if (at == name->npos) continue;
    name->replace(at, pair.to.size(), pair.from);
    return true;
  }
  return false;
}

// `name` with the pair's `from` replaced, when only "weight" or "bias" follows.
template <size_t kCount>
std::optional<std::string> Replace(std::string_view name, const Pair (&pairs)[kCount]) {
  for (const Pair& pair : pairs) {
    std::string_view rest = name;
    if (Take(&rest, pair.from) && (rest == "weight" || rest == "bias")) return std::string(pair.to) + std::string(rest);
  }
  return std::nullopt;
}

// "layers.{i}.REST" -> "layers.{i}." + mapped REST.
template <size_t kCount>
std::optional<std::string> MapLayer(std::string_view name, const Pair (&own)[kCount]) {
  std::string_view rest = name;
  if (!Take(&rest, "layers.")) return std::nullopt;
  const auto digits = std::find_if_not(rest.begin(), rest.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (digits == rest.begin()) return std::nullopt;
  rest.remove_prefix(static_cast<size_t>(digits - rest.begin()));
  if (!Take(&rest, ".")) return std::nullopt;
  std::optional<std::string> mapped = Replace(rest, kLayerParts);
  if (!mapped.has_value()) mapped = Replace(rest, own);
  if (!mapped.has_value()) return std::nullopt;
  return std::string(name.substr(0, name.size() - rest.size())) + *mapped;
}

std::optional<std::string> Prefixed(std::string prefix, std::optional<std::string> name) {
  if (!name.has_value()) return std::nullopt;
  return std::move(prefix) + *name;
}

std::optional<std::string> MapEncoder(std::string_view name) {
  std::optional<std::string> layer = MapLayer(name, kEncoderParts);
  if (layer.has_value()) return Prefixed(std::string(kModule) + "whisper_encoder.transformer.", std::move(layer));
  return Prefixed(std::string(kModule), Replace(name, kEncoderRest));
}

std::optional<std::string> MapDecoder(std::string_view name) {
  if (name == "lm_head.weight") return std::string(kHeadName);
  Take(&name, "model.");
  if (name == "embed_tokens.weight") return std::string(kEmbeddingName);
  if (name == "norm.weight") return std::string(name);
  return MapLayer(name, kDecoderParts);
}

}  // namespace

std::optional<std::string> CanonicalName(std::string_view huggingface_name) {
  std::string_view name = huggingface_name;
  if (name == "lm_head.weight") return std::string(kHeadName);
  size_t cut = name.npos;  // the last occurrence of any part's name
  for (const std::string_view part : {kAudioTower, kLanguageModel, kProjector}) {
    const size_t at = name.rfind(part);
    if (at != name.npos && (cut == name.npos || at > cut)) cut = at;
  }
  if (cut == name.npos) return std::nullopt;
  name.remove_prefix(cut);
  if (Take(&name, kAudioTower)) return MapEncoder(name);
  if (Take(&name, kLanguageModel)) return MapDecoder(name);
  Take(&name, kProjector);
  return Prefixed(std::string(kModule), Replace(name, kProjectorParts));
}

std::string HuggingFaceName(std::string_view canonical_name, PrefixStyle style) {
  const std::string outer = style == PrefixStyle::kOld ? "" : style == PrefixStyle::kNew ? "model." : "model.model.";
  if (canonical_name == kHeadName)
    return style == PrefixStyle::kOld ? "language_model.lm_head.weight" : "lm_head.weight";
  std::string name(canonical_name);
  const std::string inner = style == PrefixStyle::kNew ? "" : "model.";
  const std::string decoder = outer + std::string(kLanguageModel) + inner;
  if (canonical_name == kEmbeddingName) return decoder + "embed_tokens.weight";
  if (!canonical_name.starts_with(kModule)) {
    if (!ReplaceBack(&name, kLayerParts)) ReplaceBack(&name, kDecoderParts);
    return decoder + name;
  }
  name.erase(0, kModule.size());
  if (ReplaceBack(&name, kProjectorParts)) return outer + std::string(kProjector) + name;
  if (ReplaceBack(&name, kEncoderRest)) return outer + std::string(kAudioTower) + name;
  name.erase(0, std::string_view("whisper_encoder.transformer.").size());
  if (!ReplaceBack(&name, kLayerParts)) ReplaceBack(&name, kEncoderParts);
  return outer + std::string(kAudioTower) + name;
}

bool IsRecomputedConstant(std::string_view huggingface_name) {
  return huggingface_name == "inv_freq" || huggingface_name.ends_with(".inv_freq");
}

}  // namespace voxrt::weights
