#include "weights/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/json.h"
#include "support/root.h"

namespace voxrt::weights {
namespace {

using base::Json;
using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(test::Root() + "/" + path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

Json TinyParams() { return *base::ParseJson(ReadFile("tests/golden/tiny/params.json")); }

std::string MistralError(const std::string& text) {
  Result<ModelConfig> config = ParseMistralParams(text);
  EXPECT_FALSE(config.ok()) << text;
  if (config.ok()) return "";
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidModel);
  return config.status().message();
}

std::string HuggingFaceError(const std::string& text, const std::string& processor = "") {
  Result<ModelConfig> config = ParseHuggingFaceConfig(text, processor);
  EXPECT_FALSE(config.ok()) << text;
  if (config.ok()) return "";
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidModel);
  return config.status().message();
}

constexpr char kHuggingFaceTiny[] =
    R"({"model_type": "voxtral_realtime", "downsample_factor": 4, "audio_length_per_tok": 8,
  "default_num_delay_tokens": 6, "projector_hidden_act": "gelu",
  "audio_config": {"hidden_size": 128, "num_hidden_layers": 3, "head_dim": 64, "intermediate_size": 512, "num_attention_heads": 4,
    "rms_norm_eps": 1e-05, "sliding_window": 24, "num_mel_bins": 128, "activation_function": "gelu", "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
  "text_config": {"hidden_size": 256, "num_hidden_layers": 3, "head_dim": 128, "intermediate_size": 512, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "sliding_window": 16, "vocab_size": 1280, "rope_theta": 1000000.0}})";

TEST(ModelConfig, ReadsEveryDimensionOfTheTinyCheckpoint) {
  Result<ModelConfig> config = ParseMistralParams(ReadFile("tests/golden/tiny/params.json"));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->decoder, (StackConfig{.dim = 256,
                                          .layers = 3,
                                          .head_dim = 128,
                                          .hidden_dim = 512,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .rope_theta = 1e6,
                                          .norm_epsilon = 1e-5f,
                                          .window = 16}));
  EXPECT_EQ(config->encoder, (StackConfig{.dim = 128,
                                          .layers = 3,
                                          .head_dim = 64,
                                          .hidden_dim = 512,
                                          .heads = 4,
                                          .kv_heads = 4,
                                          .rope_theta = 1e6,
                                          .norm_epsilon = 1e-5f,
                                          .window = 24}));
  EXPECT_EQ(config->audio, AudioConfig());
  EXPECT_EQ(config->vocab_size, 1280);
  EXPECT_EQ(config->ada_dim, 32);
}

TEST(ModelConfig, BothLayoutsGiveTheSameConfigExceptTheDelayWidth) {
  ModelConfig expected = *ParseMistralParams(ReadFile("tests/golden/tiny/params.json"));
  Result<ModelConfig> config = ParseHuggingFaceConfig(kHuggingFaceTiny, "");
  ASSERT_TRUE(config.ok()) << config.status().message();
  expected.ada_dim = 0;
  EXPECT_EQ(*config, expected);
}

TEST(ModelConfig, HuggingFaceFieldsLeftOutHaveTransformersDefaults) {
  Result<ModelConfig> config =
      ParseHuggingFaceConfig(R"({"model_type":"voxtral_realtime","audio_config":{},"text_config":{}})", "");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->decoder.dim, 3072);
  EXPECT_EQ(config->decoder.kv_heads, 8);
  EXPECT_EQ(config->encoder.window, 750);
  EXPECT_EQ(config->vocab_size, 131072);
}

TEST(ModelConfig, TheProcessorGivesTheLogMelCeiling) {
  for (const char* text :
       {R"({"feature_extractor":{"global_log_mel_max":2.5,"hop_length":160}})", R"({"global_log_mel_max":2.5})"}) {
    Result<ModelConfig> config = ParseHuggingFaceConfig(kHuggingFaceTiny, text);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->audio.log_mel_max, 2.5f);
  }
  EXPECT_THAT(HuggingFaceError(kHuggingFaceTiny, R"({"hop_length":200})"),
              HasSubstr("hop_length is 200, expected 160"));
  EXPECT_THAT(HuggingFaceError(kHuggingFaceTiny, "{"), HasSubstr("processor_config.json: not valid JSON"));
}

TEST(ModelConfig, WrittenParamsReadBackEqual) {
  for (const char* path : {"tests/golden/tiny/params.json", "models/demo/params.json"}) {
    const ModelConfig config = *ParseMistralParams(ReadFile(path));
    Result<ModelConfig> again = ParseMistralParams(WriteMistralParams(config));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(*again, config);
  }
}

TEST(ModelConfig, AWrittenHuggingFaceConfigReadsBackEqualButForTheDelayWidth) {
  for (const char* path : {"tests/golden/tiny/params.json", "models/demo/params.json"}) {
    ModelConfig config = *ParseMistralParams(ReadFile(path));
    Result<ModelConfig> again = ParseHuggingFaceConfig(WriteHuggingFaceConfig(config), "");
    ASSERT_TRUE(again.ok()) << again.status().message();
    config.ada_dim = 0;
    EXPECT_EQ(*again, config);
  }
}

TEST(ModelConfig, OtherVoxtralsAreNamed) {
  EXPECT_THAT(MistralError(R"({"dim":3072,"n_layers":30,"multimodal":{}})"),
              HasSubstr("Voxtral-Mini-3B-2507 (no ada_rms_norm_t_cond), expected Voxtral-Mini-4B-Realtime-2602"));
  EXPECT_THAT(MistralError(R"({"dim":5120,"n_layers":40,"multimodal":{}})"), HasSubstr("Voxtral-Small-24B-2507"));
  EXPECT_THAT(MistralError(R"({"dim":4096,"n_layers":32})"), HasSubstr("text model"));
  EXPECT_THAT(HuggingFaceError(R"({"model_type":"voxtral","text_config":{"hidden_size":3072,"num_hidden_layers":30}})"),
              HasSubstr("Voxtral-Mini-3B-2507"));
  EXPECT_THAT(HuggingFaceError(R"({"model_type":"whisper"})"),
              HasSubstr("type \"whisper\", expected Voxtral-Mini-4B-Realtime-2602"));
  EXPECT_THAT(HuggingFaceError("{}"), HasSubstr("no model_type"));
}

TEST(ModelConfig, AStringIsAcceptedAsWindow) {
  Json params = TinyParams();
  params["sliding_window"] = "8192";
  Result<ModelConfig> config = ParseMistralParams(params.Dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->decoder.window, 8192);
  params["sliding_window"] = "8192x";
  EXPECT_THAT(MistralError(params.Dump()),
              HasSubstr("params.json: sliding_window is \"8192x\", expected an integer from 1"));
}

TEST(ModelConfig, NamesTheWrongField) {
  EXPECT_THAT(MistralError("{"), HasSubstr("params.json: not valid JSON at byte 1"));
  EXPECT_THAT(MistralError("[]"), HasSubstr("expected an object"));
  const auto with = [](const char* key, Json value) {
    Json params = TinyParams();
    params[key] = std::move(value);
    return MistralError(params.Dump());
  };
  EXPECT_THAT(with("dim", 0), HasSubstr("params.json: dim is 0, expected an integer from 1 to 1048576"));
  EXPECT_THAT(with("dim", "wide"), HasSubstr("dim is \"wide\""));
  EXPECT_THAT(with("dim", 1.5), HasSubstr("dim is 1.5"));
  EXPECT_THAT(with("n_layers", int64_t{1} << 40), HasSubstr("n_layers is 1099511627776"));
  EXPECT_THAT(with("head_dim", 127), HasSubstr("head_dim is 127, expected an even number"));
  EXPECT_THAT(with("n_kv_heads", 3), HasSubstr("4 heads and 3 key/value heads"));
  EXPECT_THAT(with("rope_theta", -1.0), HasSubstr("rope_theta is -1.0, expected a positive number"));
  EXPECT_THAT(with("norm_eps", 1e-200),
              HasSubstr("norm_eps is 1e-200, expected a positive number from 1e-30"));  // 0 as a float
  EXPECT_THAT(with("tied_embeddings", false), HasSubstr("tied_embeddings is false, expected true"));
  EXPECT_THAT(with("use_biases", true), HasSubstr("use_biases is true"));
  EXPECT_THAT(with("multimodal", 3), HasSubstr("multimodal is an integer, expected an object"));
  EXPECT_THAT(with("multimodal", Json::MakeObject()), HasSubstr("multimodal.whisper_model_args is missing"));
}

TEST(ModelConfig, AnotherFrontEndOrEncoderIsRefused) {
  const auto with = [](const char* section, const char* key, Json value) {
    Json params = TinyParams();
    Json& whisper = params["multimodal"]["whisper_model_args"];
    Json& encoder = whisper["encoder_args"];
    Json& object = std::string_view(section) == "audio"     ? encoder["audio_encoding_args"]
                   : std::string_view(section) == "encoder" ? encoder
                                                            : whisper["downsample_args"];
    object[key] = std::move(value);
    return MistralError(params.Dump());
  };
  EXPECT_THAT(with("audio", "sampling_rate", 24000),
              HasSubstr("audio_encoding_args.sampling_rate is 24000, expected 16000"));
  EXPECT_THAT(with("audio", "frame_rate", 25), HasSubstr("frame_rate is 25, expected 12.5"));
  EXPECT_THAT(with("audio", "hop_length", 320), HasSubstr("hop_length"));
  EXPECT_THAT(with("encoder", "ffn_type", "mlp"), HasSubstr("encoder_args.ffn_type is \"mlp\", expected \"swiglu\""));
  EXPECT_THAT(with("encoder", "causal", false), HasSubstr("causal is false"));
  EXPECT_THAT(with("encoder", "n_kv_heads", 2), HasSubstr("encoder has 4 heads and 2"));
  EXPECT_THAT(with("downsample", "downsample_factor", 2), HasSubstr("downsample_factor is 2, expected 4"));
}

}  // namespace
}  // namespace voxrt::weights
