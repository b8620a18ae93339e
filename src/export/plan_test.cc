#include "export/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/root.h"
#include "weights/checkpoint.h"

namespace voxrt::exporter {
namespace {

using quant::FormatKind;
using ::testing::HasSubstr;

const std::string kTiny = test::Root() + "/tests/golden/tiny";

ExportOptions Options() {
  ExportOptions options;
  options.model_path = kTiny;
  options.output_path = "/tmp/unused.safetensors";
  return options;
}

std::string Refusal(const ExportOptions& options) {
  const Status status = ValidateOptions(options);
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  return status.message();
}

TEST(ExportOptionsTest, EveryBadCombinationIsRefusedInOneLineThatNamesTheFix) {
  struct Case {
    std::function<void(ExportOptions*)> edit;
    const char* words;
  };
  const Case cases[] = {
      {[](ExportOptions* o) { o->backend = "cuda", o->dtype = "fp32"; }, "use --dtype bf16"},
      {[](ExportOptions* o) { o->backend = "metal"; }, "use cpu or cuda"},
      {[](ExportOptions* o) { o->dtype = "fp16"; }, "use fp32 or bf16"},
      {[](ExportOptions* o) { o->linear.packing = "tile_packed_to_4d"; }, "no effect without --qlinear 4w"},
      {[](ExportOptions* o) { o->encoder.packing = "tile_packed_to_4d"; }, "no effect without --qlinear-encoder 4w"},
      {[](ExportOptions* o) {
         o->backend = "cuda", o->linear = {"8w", kAutoGroup, "tile_packed_to_4d"};
       },
       "needs --qlinear 4w, found 8w"},
      {[](ExportOptions* o) {
         o->backend = "cuda", o->linear = {"8da4w", kAutoGroup, "tile_packed_to_4d"};
       },
       "needs --qlinear 4w, found 8da4w"},
      {[](ExportOptions* o) {
         o->linear = {"4w", kAutoGroup, "tile_packed_to_4d"};
       },
       "add --backend cuda"},
      {[](ExportOptions* o) {
         o->backend = "cuda", o->linear = {"4w", kAutoGroup, "tiled"};
       },
       "the only one is tile_packed_to_4d"},
      {[](ExportOptions* o) {
         o->linear = {"4w", 48, ""};
       },
       "use 32, 64, 128 or 256"},
      {[](ExportOptions* o) {
         o->linear = {"4w", 33, ""};
       },
       "use 32, 64, 128 or 256"},
      {[](ExportOptions* o) {
         o->encoder = {"8da4w", 0, ""};
       },
       "needs 8 bits"},
      {[](ExportOptions* o) {
         o->encoder = {"8w", -5, ""};
       },
       "or 0 for one scale per row"},
      {[](ExportOptions* o) { o->linear.group = 64; }, "no effect without --qlinear"},
      {[](ExportOptions* o) { o->linear.type = "fpa4w"; }, "use 4w or 8da4w"},
      {[](ExportOptions* o) { o->linear.type = "nvfp4"; }, "use 4w or 8da4w"},
      {[](ExportOptions* o) { o->linear.type = "int4"; }, "use one of 4w, 8w, 8da4w, 8da8w"},
      {[](ExportOptions* o) { o->embedding.type = "8da8w"; }, "use one of 4w, 8w"},
      {[](ExportOptions* o) { o->linear.type = "none"; }, "use one of 4w, 8w, 8da4w, 8da8w"},
      {[](ExportOptions* o) {
         o->head = {"none", 32, ""};
       },
       "drop --qhead-group-size"},
      {[](ExportOptions* o) { o->head.type = "bf16"; }, "use one of 4w, 8w, 8da4w, 8da8w, none"},
      {[](ExportOptions* o) { o->delay_tokens = 0; }, "use 1 to 30"},
      {[](ExportOptions* o) { o->delay_tokens = 31; }, "use 1 to 30"},
      {[](ExportOptions* o) { o->max_seq_len = 0; }, "use 1 to"},
      {[](ExportOptions* o) { o->max_seq_len = INT64_MAX; }, "use 1 to"},
      {[](ExportOptions* o) {
         o->linear = {"4w", -1, ""};
       },
       "use 32, 64, 128 or 256"},
      {[](ExportOptions* o) { o->sliding_window = -1; }, "use 7 or more"},
      {[](ExportOptions* o) { o->sliding_window = 0; }, "use 7 or more"},
      {[](ExportOptions* o) { o->sliding_window = 6; }, "use 7 or more"},
      {[](ExportOptions* o) { o->max_enc_len = -1; }, "use 4 or more"},
      {[](ExportOptions* o) { o->max_enc_len = 0; }, "use 4 or more"},
      {[](ExportOptions* o) { o->max_enc_len = 3; }, "use 4 or more"},
      {[](ExportOptions* o) { o->data_path = o->output_path; }, "a name of their own"},
      {[](ExportOptions* o) { o->model_path.clear(); }, "--model is missing"},
      {[](ExportOptions* o) { o->output_path.clear(); }, "--output"},
      {[](ExportOptions* o) { o->threads = -1; }, "--threads"},
  };
  EXPECT_EQ(Refusal(Options()), "");
  for (const Case& test : cases) {
    ExportOptions options = Options();
    test.edit(&options);
    EXPECT_THAT(Refusal(options), HasSubstr(test.words));
  }
}

TEST(ExportOptionsTest, TheCommandIsCompleteAndQuoted) {
  ExportOptions options = Options();
  options.model_path = "my model's";
  options.linear = {"8da4w", 128, ""};
  options.embedding = {"8w", kAutoGroup, ""};
  options.streaming = true;
  EXPECT_EQ(CommandOf(options),
            "voxrt export --model 'my model'\\''s' --backend cpu --dtype bf16 --qlinear 8da4w --qlinear-group-size 128 "
            "--qembedding 8w --streaming "
            "--delay-tokens 6");
}

class PlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = weights::Checkpoint::Open(kTiny, {.scan_values = false});
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    checkpoint_ = *opened;
  }
  ExportPlan PlanOf(const ExportOptions& options) {
    auto plan = MakePlan(options, *checkpoint_);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.ok() ? *plan : ExportPlan{};
  }
  static std::string FormatIn(const ExportPlan& plan, std::string_view name) {
    const auto found = plan.formats.find(name);
    return found == plan.formats.end() ? "float" : quant::FormatName(found->second);
  }
  static bool Stores(const ExportPlan& plan, std::string_view name) {
    for (const PlannedTensor& tensor : plan.tensors) {
      if (tensor.name == name) return true;
    }
    return false;
  }

  std::shared_ptr<const weights::Checkpoint> checkpoint_;
};

constexpr char kEncoderW1[] =
    "mm_streams_embeddings.embedding_module.whisper_encoder.transformer.layers.0.feed_forward.w1.weight";
constexpr char kAdapter[] = "mm_streams_embeddings.embedding_module.audio_language_projection.0.weight";

TEST_F(PlanTest, SwitchesReachTheirPartsAndNothingElse) {
  ExportOptions options = Options();
  options.linear = {"8da4w", 128, ""};
  options.encoder = {"8w", kAutoGroup, ""};
  options.embedding = {"8w", kAutoGroup, ""};
  const ExportPlan plan = PlanOf(options);
  EXPECT_EQ(FormatIn(plan, "layers.0.attention.wq.weight"), "8da4w g128");
  EXPECT_EQ(FormatIn(plan, "layers.2.feed_forward.w2.weight"), "8da4w g128");
  EXPECT_EQ(FormatIn(plan, kEncoderW1), "8w");
  EXPECT_EQ(FormatIn(plan, kAdapter), "8w");
  EXPECT_EQ(FormatIn(plan, weights::kEmbeddingName), "8w");
  EXPECT_EQ(FormatIn(plan, weights::kHeadName), "8da4w g128");
  for (const char* never : {"layers.0.ada_rms_norm_t_cond.0.weight", "layers.0.attention_norm.weight", "norm.weight",
                            "mm_streams_embeddings.embedding_module.whisper_encoder.conv_layers.0.conv.weight"}) {
    EXPECT_EQ(FormatIn(plan, never), "float") << never;
    EXPECT_TRUE(Stores(plan, never)) << never;
  }
}

TEST_F(PlanTest, TheHeadIsStoredOnceWhereItEqualsTheEmbedding) {
  ExportOptions options = Options();
  EXPECT_TRUE(PlanOf(options).head_shares_embedding);
  options.linear = {"8da4w", 128, ""};
  EXPECT_FALSE(PlanOf(options).head_shares_embedding);
  options.embedding = {"8w", kAutoGroup, ""};
  options.head = {"8w", kAutoGroup, ""};
  ExportPlan plan = PlanOf(options);
  EXPECT_TRUE(plan.head_shares_embedding);
  EXPECT_EQ(FormatIn(plan, weights::kHeadName), "float") << "no entry of its own";
  options.head = {"8da8w", kAutoGroup, ""};
  plan = PlanOf(options);
  EXPECT_TRUE(plan.head_shares_embedding);
  EXPECT_FALSE(Stores(plan, weights::kHeadName));
  EXPECT_EQ(FormatIn(plan, weights::kHeadName), "8da8w");
  options.head = {"8w", 64, ""};
  EXPECT_TRUE(Stores(PlanOf(options), weights::kHeadName));
  options.head = {"none", kAutoGroup, ""};
  plan = PlanOf(options);
  EXPECT_TRUE(Stores(plan, weights::kHeadName)) << "its floats, beside the quantized table";
  EXPECT_EQ(FormatIn(plan, weights::kHeadName), "float");
  options.embedding = {};
  EXPECT_TRUE(PlanOf(options).head_shares_embedding);
}

TEST_F(PlanTest, AGroupThatDoesNotDivideIsRefusedWithTheLayersName) {
  ExportOptions options = Options();
  options.encoder = {"8w", 256, ""};  // the tiny encoder is 128 wide
  auto plan = MakePlan(options, *checkpoint_);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(), HasSubstr("attention.wq.weight cannot be 8w g256"));
  EXPECT_THAT(plan.status().message(), HasSubstr("not a multiple of group size 256"));
}

TEST_F(PlanTest, WindowsAboveTheCheckpointsAreRefused) {
  ExportOptions options = Options();
  options.sliding_window = 17;
  auto plan = MakePlan(options, *checkpoint_);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(), HasSubstr("--sliding-window 17 is above the checkpoint's window of 16"));
  options.sliding_window.reset();
  options.max_enc_len = 25;
  EXPECT_FALSE(MakePlan(options, *checkpoint_).ok());
}

TEST(FormatOfTest, AutoGroups) {
  EXPECT_EQ(quant::FormatName(FormatOf({"4w", kAutoGroup, ""})), "4w g32");
  EXPECT_EQ(quant::FormatName(FormatOf({"8w", kAutoGroup, ""})), "8w");
  EXPECT_EQ(quant::FormatName(FormatOf({"8da8w", 128, ""})), "8da8w g128");
  EXPECT_EQ(FormatOf({"4w", 64, kTilePacking}).kind, FormatKind::kInt4Tile);
}

}  // namespace
}  // namespace voxrt::exporter
