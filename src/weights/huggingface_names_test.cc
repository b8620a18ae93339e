#include "weights/huggingface_names.h"

#include <gtest/gtest.h>

#include <set>

#include "weights/checkpoint.h"
#include "weights/tensor_table.h"

namespace voxrt::weights {
namespace {

TEST(HuggingFaceNames, WhateverStandsBeforeTheLastPartIsCut) {
  for (const char* prefix : {"", "model.", "model.model.", "x.language_model.", "language_model.model."}) {
    EXPECT_EQ(CanonicalName(std::string(prefix) + "audio_tower.layers.12.self_attn.q_proj.bias"),
              "mm_streams_embeddings.embedding_module.whisper_encoder.transformer.layers.12.attention.wq.bias");
    EXPECT_EQ(CanonicalName(std::string(prefix) + "multi_modal_projector.linear_2.weight"),
              "mm_streams_embeddings.embedding_module.audio_language_projection.2.weight");
    EXPECT_EQ(CanonicalName(std::string(prefix) + "language_model.model.norm.weight"), "norm.weight");
    EXPECT_EQ(CanonicalName(std::string(prefix) + "language_model.norm.weight"), "norm.weight");
  }
}

TEST(HuggingFaceNames, TheTwoStacksNameTheirNormsDifferently) {
  const std::string layer = "mm_streams_embeddings.embedding_module.whisper_encoder.transformer.layers.0.";
  EXPECT_EQ(CanonicalName("audio_tower.layers.0.final_layer_norm.weight"), layer + "ffn_norm.weight");
  EXPECT_EQ(CanonicalName("audio_tower.layers.0.self_attn_layer_norm.weight"), layer + "attention_norm.weight");
  EXPECT_EQ(CanonicalName("language_model.layers.3.input_layernorm.weight"), "layers.3.attention_norm.weight");
  EXPECT_EQ(CanonicalName("language_model.layers.3.post_attention_layernorm.weight"), "layers.3.ffn_norm.weight");
  EXPECT_EQ(CanonicalName("audio_tower.layers.0.input_layernorm.weight"), std::nullopt);
  EXPECT_EQ(CanonicalName("language_model.layers.3.final_layer_norm.weight"), std::nullopt);
}

TEST(HuggingFaceNames, TheHeadHasThreeSpellings) {
  for (const char* name : {"lm_head.weight", "language_model.lm_head.weight", "model.language_model.lm_head.weight"}) {
    EXPECT_EQ(CanonicalName(name), kHeadName);
  }
}

TEST(HuggingFaceNames, OtherNamesAreNone) {
  for (const char* name :
       {"", "norm.weight", "audio_tower.", "language_model.", "language_model.layers..mlp.up_proj.weight",
        "language_model.model.model.norm.weight", "language_model.layers.x.mlp.up_proj.weight",
        "language_model.layers.1.mlp.up_proj.weight.extra", "language_model.layers.1",
        "language_model.layers.1.mlp.up_proj.scale", "multi_modal_projector.linear_3.weight",
        "audio_tower.embedder.conv3.weight", "model.embed_tokens.weight", "language_model.embed_tokens.bias"}) {
    EXPECT_EQ(CanonicalName(name), std::nullopt) << name;
  }
}

TEST(HuggingFaceNames, EveryTensorOfAModelGoesThereAndBack) {
  ModelConfig config;
  config.encoder = {.dim = 64, .layers = 12, .head_dim = 8, .hidden_dim = 64, .heads = 2, .kv_heads = 2, .window = 9};
  config.decoder = {.dim = 64, .layers = 2, .head_dim = 8, .hidden_dim = 64, .heads = 2, .kv_heads = 1, .window = 9};
  config.vocab_size = 1001;
  config.ada_dim = 4;
  for (const PrefixStyle style : {PrefixStyle::kOld, PrefixStyle::kNew, PrefixStyle::kDoubled}) {
    std::set<std::string> names;
    for (const TensorSpec& spec : ExpectedTensors(config)) {
      const std::string name = HuggingFaceName(spec.name, style);
      EXPECT_EQ(CanonicalName(name), spec.name) << name;
      EXPECT_TRUE(names.insert(name).second) << name;
    }
  }
}

TEST(HuggingFaceNames, FrequencyTablesAreRecomputed) {
  EXPECT_TRUE(IsRecomputedConstant("model.time_embedding.inv_freq"));
  EXPECT_TRUE(IsRecomputedConstant("audio_tower.rotary_emb.inv_freq"));
  EXPECT_FALSE(IsRecomputedConstant("x_inv_freq"));
}

}  // namespace
}  // namespace voxrt::weights
