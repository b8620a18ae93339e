#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "weights/checkpoint.h"
#include "weights/checkpoint_source.h"
#include "weights/test_checkpoints.h"

namespace voxrt::weights {
namespace {

using base::Json;
using quant::DType;
using ::testing::HasSubstr;
using CheckpointPtr = std::shared_ptr<const Checkpoint>;

Result<CheckpointPtr> Open(const TempFolder& folder) { return Checkpoint::Open(folder.path(), {.threads = 2}); }

// What a tensor of the Hugging Face folder is in Mistral's row order.
std::string InMistralOrder(const Checkpoint& checkpoint, const std::string& name, const Tensor& tensor) {
  const std::string data(reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes));
  const bool query = name.find("attention.wq.") != name.npos;
  if (!query && name.find("attention.wk.") == name.npos) return data;
  const ModelConfig& config = checkpoint.config();
  const bool encoder = name.find("whisper_encoder") != name.npos;
  const int heads = encoder ? config.encoder.heads : query ? config.decoder.heads : config.decoder.kv_heads;
  return RowsToAdjacent(data, tensor.shape[0], heads);
}

TEST(HuggingFaceCheckpoint, EveryPrefixAndAnyNumberOfShardsIsTheSameModel) {
  const CheckpointPtr expected = *Checkpoint::Open(TinyFolder(), {});
  for (const PrefixStyle style : {PrefixStyle::kOld, PrefixStyle::kNew, PrefixStyle::kDoubled}) {
    for (const int shards : {1, 3}) {
      const TempFolder folder;
      WriteHuggingFaceFolder(folder, HuggingFaceTensors(style), shards);
      const Result<CheckpointPtr> opened = Open(folder);
      ASSERT_TRUE(opened.ok()) << opened.status().message();
      const Checkpoint& checkpoint = **opened;
      EXPECT_EQ(checkpoint.layout(), "huggingface");
      EXPECT_EQ(checkpoint.rope_rows(), RopeRows::kHalf);
      EXPECT_EQ(checkpoint.config(), expected->config());
      EXPECT_EQ(checkpoint.parameters(), expected->parameters());
      EXPECT_FALSE(checkpoint.Has(kHeadName));
      EXPECT_EQ(*ParseMistralParams(checkpoint.params_json()), expected->config());
      ASSERT_EQ(checkpoint.tensors().size(), expected->tensors().size());
      for (const auto& [name, tensor] : expected->tensors()) {
        ASSERT_TRUE(checkpoint.Has(name)) << name;
        const Tensor& found = checkpoint.tensors().find(name)->second;
        const std::string_view data(reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes));
        EXPECT_TRUE(InMistralOrder(checkpoint, name, found) == data) << name;
      }
    }
  }
}

TEST(HuggingFaceCheckpoint, RowsAreReallyPermuted) {
  const TempFolder folder;
  WriteHuggingFaceFolder(folder, HuggingFaceTensors(PrefixStyle::kNew), 1);
  const CheckpointPtr half = *Open(folder);
  const CheckpointPtr adjacent = *Checkpoint::Open(TinyFolder(), {});
  const std::string name = "layers.0.attention.wk.weight";
  const quant::HostLinear a = half->Linear(name);
  const quant::HostLinear b = adjacent->Linear(name);
  const int dim = half->config().decoder.head_dim;
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < dim / 2; ++i) {
      EXPECT_EQ(quant::Dequantize(a, dim + r * (dim / 2) + i, 7), quant::Dequantize(b, dim + 2 * i + r, 7));
    }
  }
}

TEST(HuggingFaceCheckpoint, AnUntiedHeadIsKept) {
  const TempFolder folder;
  std::vector<StoredTensor> tensors = HuggingFaceTensors(PrefixStyle::kNew);
  FindTensor(&tensors, "lm_head.weight")->data[0] ^= 1;
  WriteHuggingFaceFolder(folder, tensors, 1);
  const Result<CheckpointPtr> opened = Open(folder);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_TRUE((*opened)->Has(kHeadName));
}

TEST(HuggingFaceCheckpoint, ACheckpointWithoutHeadIsTied) {
  const TempFolder folder;
  std::vector<StoredTensor> tensors = HuggingFaceTensors(PrefixStyle::kNew);
  tensors.pop_back();
  tensors.push_back(
      {"model.time_embedding.inv_freq", DType::kF32, {1}, std::string(4, '\0')});  // saved by some versions
  WriteHuggingFaceFolder(folder, tensors, 1);
  const Result<CheckpointPtr> opened = Open(folder);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_FALSE((*opened)->Has(kHeadName));
}

TEST(HuggingFaceCheckpoint, MistralWinsWhereBothLayoutsAre) {
  const TempFolder folder;
  WriteMistralFolder(folder);
  WriteHuggingFaceFolder(folder, HuggingFaceTensors(PrefixStyle::kNew), 1);
  ::testing::internal::CaptureStderr();
  const Result<CheckpointPtr> opened = Open(folder);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ((*opened)->layout(), "mistral");
  EXPECT_THAT(log, HasSubstr("holds both layouts: consolidated.safetensors is used"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
}

TEST(HuggingFaceCheckpoint, TheProcessorFileIsRead) {
  const TempFolder folder;
  WriteHuggingFaceFolder(folder, HuggingFaceTensors(PrefixStyle::kNew), 1);
  WriteAll(folder / kProcessorFile, R"({"feature_extractor":{"global_log_mel_max":1.75}})");
  const Result<CheckpointPtr> opened = Open(folder);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ((*opened)->config().audio.log_mel_max, 1.75f);
}

std::string ErrorOf(const TempFolder& folder) {
  const Result<CheckpointPtr> opened = Open(folder);
  EXPECT_FALSE(opened.ok());
  return opened.ok() ? "" : opened.status().message();
}

std::string ErrorAfter(const std::function<void(std::vector<StoredTensor>*)>& edit) {
  const TempFolder folder;
  std::vector<StoredTensor> tensors = HuggingFaceTensors(PrefixStyle::kNew);
  edit(&tensors);
  WriteHuggingFaceFolder(folder, tensors, 1);
  return ErrorOf(folder);
}

TEST(HuggingFaceCheckpoint, WrongTensorsAreNamed) {
  using Tensors = std::vector<StoredTensor>;
  EXPECT_THAT(ErrorAfter([](Tensors* t) {
                t->push_back({"model.vision_tower.x.weight", DType::kBF16, {1}, "ab"});
              }),
              HasSubstr("tensor \"model.vision_tower.x.weight\" is not one of this model's"));
  EXPECT_THAT(ErrorAfter([](Tensors* t) {
                t->push_back({"model.audio_tower.layers.7.mlp.up_proj.weight", DType::kBF16, {1}, "ab"});
              }),
              HasSubstr("tensor \"model.audio_tower.layers.7.mlp.up_proj.weight\" is not one of this model's"));
  EXPECT_THAT(ErrorAfter([](Tensors* t) {
                StoredTensor copy = *FindTensor(t, "model.audio_tower.norm.weight");
                copy.name = "audio_tower.norm.weight";
                t->push_back(copy);
              }),
              HasSubstr("is stored twice, also as"));
  EXPECT_THAT(ErrorAfter([](Tensors* t) {
                std::erase_if(*t, [](const StoredTensor& x) { return x.name.ends_with("linear1.weight"); });
              }),
              HasSubstr("delay layers"));
}

TEST(HuggingFaceCheckpoint, BrokenIndexesAndShardsAreNamed) {
  const TempFolder folder;
  WriteHuggingFaceFolder(folder, HuggingFaceTensors(PrefixStyle::kOld), 3);
  const std::string index = ReadAll(folder / kIndexFile);
  std::filesystem::remove(folder / "model-2.safetensors");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("model-2.safetensors: No such file"));
  for (const char* name : {"../model-2.safetensors", "/etc/passwd", "..", ""}) {
    Json json = *base::ParseJson(index);
    (*json["weight_map"].AsObject())[0].second = name;
    WriteAll(folder / kIndexFile, json.Dump());
    EXPECT_THAT(ErrorOf(folder), HasSubstr("is no plain file name")) << name;
  }
  WriteAll(folder / kIndexFile, "{}");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("weight_map is missing"));
  WriteAll(folder / kIndexFile, "{");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("not valid JSON at byte 1"));
  std::filesystem::remove(folder / kIndexFile);
  EXPECT_THAT(ErrorOf(folder), HasSubstr("has config.json but no model.safetensors"));
}

TEST(HuggingFaceCheckpoint, MissingFilesAreNamed) {
  for (const char* name : {kConfigFile, kTekkenFile}) {
    const TempFolder folder;
    WriteHuggingFaceFolder(folder, HuggingFaceTensors(PrefixStyle::kOld), 1);
    std::filesystem::remove(folder / name);
    EXPECT_THAT(ErrorOf(folder), HasSubstr(std::string("no ") + name));
  }
}

}  // namespace
}  // namespace voxrt::weights
