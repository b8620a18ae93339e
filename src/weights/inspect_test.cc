#include "weights/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/root.h"
#include "weights/checkpoint_source.h"
#include "weights/test_checkpoints.h"

namespace voxrt::weights {
namespace {

using base::Json;
using ::testing::HasSubstr;

TEST(Inspect, ReportsAGoodModel) {
  const Result<ModelReport> report = InspectModel(TinyFolder());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->error.ok());
  EXPECT_EQ(report->layout, "mistral");
  EXPECT_EQ(report->config->decoder.dim, 256);
  EXPECT_EQ(report->tensors.size(), 81u);
  EXPECT_EQ(report->weight_bytes, report->parameters * 2);
  EXPECT_EQ(report->default_delay_ms, 480);
  ASSERT_EQ(report->dtypes.size(), 1u);
  EXPECT_EQ(report->dtypes[0].dtype, "BF16");
  EXPECT_EQ(report->dtypes[0].tensors, 81);
  ASSERT_EQ(report->files.size(), 1u);
  EXPECT_GT(report->files[0].bytes, report->weight_bytes);
  for (const TensorReport& tensor : report->tensors) EXPECT_EQ(tensor.format, "bf16") << tensor.name;
}

TEST(Inspect, CachesFollowTheFormula) {
  ModelConfig config;
  config.encoder = {
      .dim = 1280, .layers = 32, .head_dim = 64, .hidden_dim = 5120, .heads = 32, .kv_heads = 32, .window = 750};
  config.decoder = {
      .dim = 3072, .layers = 26, .head_dim = 128, .hidden_dim = 9216, .heads = 32, .kv_heads = 8, .window = 8192};
  const CacheReport bf16 = CacheBytes(config, "bf16", 2);
  EXPECT_EQ(bf16.encoder_bytes, 197'394'432);  // docs/model.md 8.1
  EXPECT_EQ(bf16.decoder_bytes, 872'415'232);
  EXPECT_EQ(CacheBytes(config, "fp32", 4).decoder_bytes, 2 * 872'415'232LL);
}

TEST(Inspect, ABrokenModelShowsWhatCanBeReadAndTheError) {
  const TempFolder folder;
  WriteMistralFolder(folder);
  const std::string weights = folder / kConsolidatedFile;
  const std::string good = ReadAll(weights);
  WriteAll(weights, good.substr(0, good.size() / 2));
  const Result<ModelReport> report = InspectModel(folder.path());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->error.code(), StatusCode::kInvalidModel);
  EXPECT_THAT(report->error.message(), HasSubstr("cut off"));
  EXPECT_EQ(report->layout, "mistral");
  EXPECT_EQ(report->config->decoder.layers, 3);
  EXPECT_EQ(report->tensors.size(), 81u);
  EXPECT_EQ(report->files[0].bytes, static_cast<int64_t>(good.size() / 2));
  EXPECT_EQ(report->default_delay_ms, 480);
}

TEST(Inspect, AnythingAtAllIsReportedWithAnError) {
  const TempFolder folder;
  EXPECT_EQ(InspectModel(folder / "absent").status().code(), StatusCode::kNotFound);
  const Result<ModelReport> empty = InspectModel(folder.path());
  ASSERT_TRUE(empty.ok());
  EXPECT_FALSE(empty->error.ok());
  EXPECT_TRUE(empty->tensors.empty());
  WriteAll(folder / "page", "<html>");
  const Result<ModelReport> page = InspectModel(folder / "page");
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(page->error.message(), HasSubstr("HTML"));
  const Result<ModelReport> other = InspectModel(test::Root() + "/tests/golden/tiny_golden.safetensors");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->layout, "safetensors");
  EXPECT_FALSE(other->error.ok());
  EXPECT_GT(other->tensors.size(), 10u);
}

TEST(Inspect, NanIsFoundWhenAskedFor) {
  const TempFolder folder;
  WriteMistralFolder(folder, [](std::vector<StoredTensor>* tensors) {
    FindTensor(tensors, "norm.weight")->data.replace(0, 2, "\xc0\x7f");
  });
  EXPECT_TRUE(InspectModel(folder.path())->error.ok());
  InspectOptions options;
  options.scan_values = true;
  EXPECT_THAT(InspectModel(folder.path(), options)->error.message(), HasSubstr("norm.weight holds NaN"));
}

TEST(Inspect, HuggingFaceShardsAreListed) {
  const TempFolder folder;
  WriteHuggingFaceFolder(folder, HuggingFaceTensors(PrefixStyle::kNew), 2);
  const Result<ModelReport> report = InspectModel(folder.path());
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->error.ok()) << report->error.message();
  EXPECT_EQ(report->layout, "huggingface");
  EXPECT_EQ(report->files.size(), 2u);
  EXPECT_EQ(report->tensors.size(), 81u);
}

TEST(Inspect, JsonHoldsTheReport) {
  const Json json = ToJson(*InspectModel(TinyFolder()));
  EXPECT_EQ(*json.Find("layout")->AsString(), "mistral");
  EXPECT_EQ(json.Find("config")->Find("decoder")->Find("dim")->AsInt(), 256);
  EXPECT_EQ(json.Find("tensors")->AsArray()->size(), 81u);
  EXPECT_EQ(json.Find("error"), nullptr);
  EXPECT_TRUE(base::ParseJson(json.Dump()).ok());
  const TempFolder folder;
  EXPECT_EQ(*ToJson(*InspectModel(folder.path())).Find("error")->Find("code")->AsString(), "not_found");
}

}  // namespace
}  // namespace voxrt::weights
