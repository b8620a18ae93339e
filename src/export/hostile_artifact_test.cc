// Damaged and hostile artifacts: whatever is done to the bytes, opening ends in a checkpoint or in a message, and
// messages say what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "export/export.h"
#include "weights/artifact_metadata.h"
#include "weights/artifact_verify.h"
#include "weights/checkpoint.h"
#include "weights/test_checkpoints.h"

namespace voxrt::exporter {
namespace {

using ::testing::HasSubstr;
using weights::Checkpoint;
using weights::TempFolder;

class HostileArtifactTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ExportOptions options;
    options.model_path = weights::TinyFolder();
    options.output_path = folder_ / "good.safetensors";
    options.linear = {"8da4w", 32, ""};
    options.encoder = {"8w", kAutoGroup, ""};
    options.embedding = {"8w", kAutoGroup, ""};
    options.head = {"8da8w", kAutoGroup, ""};
    const auto checkpoint = *Checkpoint::Open(options.model_path, {});
    ASSERT_TRUE(WriteArtifact(options, *MakePlan(options, *checkpoint), *checkpoint, "test", {}).ok());
    good_ = weights::ReadAll(options.output_path);
  }

  // Message for the artifact with `from` in its header replaced by `to` (the header's length is adapted), empty when it
  // opens.
  std::string Replaced(const std::string& from, const std::string& to) {
    std::string bytes = good_;
    const size_t at = bytes.find(from);
    EXPECT_NE(at, bytes.npos) << from;
    bytes.replace(at, from.size(), to);
    uint64_t length = HeaderLength(bytes);
    length += to.size() - from.size();
    while (length % 8 != 0) {  // JSON may end in spaces; alignment of the data is kept
      bytes.insert(8 + length, " ");
      ++length;
    }
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
    return MessageFor(bytes);
  }

  static uint64_t HeaderLength(const std::string& bytes) {
    uint64_t length = 0;
    for (size_t i = 0; i < 8; ++i) length |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    return length;
  }

  std::string MessageFor(const std::string& bytes) {
    const std::string path = folder_ / "bad.safetensors";
    weights::WriteAll(path, bytes);
    auto opened = Checkpoint::Open(path, {.threads = 1});
    return opened.ok() ? "" : opened.status().message();
  }

  TempFolder folder_;
  std::string good_;
};

TEST_F(HostileArtifactTest, MetadataThatIsWrongIsNamed) {
  ASSERT_EQ(MessageFor(good_), "");
  EXPECT_THAT(Replaced(R"("voxrt.artifact":"1")", R"("voxrt.artifact":"2")"),
              HasSubstr("has version \"2\", this program reads version 1"));
  EXPECT_THAT(Replaced(R"("voxrt.artifact")", R"("voxrt.artifakt")"), HasSubstr("not written by `voxrt export`"));
  EXPECT_THAT(Replaced(R"("voxrt.part":"whole")", R"("voxrt.part":"half")"), HasSubstr("part is \"half\""));
  EXPECT_THAT(Replaced("int4=run32.1", "int4=run32.2"), HasSubstr("order of codes"));
  EXPECT_THAT(Replaced(R"(\"8da4w g32\")", R"(\"9da4w g32\")"), HasSubstr("a format that this version does not know"));
  EXPECT_THAT(Replaced(R"(\"8da4w g32\")", R"(\"8da4w g64\")"), HasSubstr("expected BF16"));
  EXPECT_THAT(Replaced(R"(\"8da4w g32\")", R"(\"8w\")"), HasSubstr("expected I8"));
  EXPECT_THAT(Replaced(R"(\"8da4w g32\")", R"(\"bf16\")"), HasSubstr("does not know"));
  EXPECT_THAT(Replaced(R"({\"delay_tokens\":6)", R"({\"delay_tokens\":600)"), HasSubstr("out of range"));
  EXPECT_THAT(Replaced(R"(\"decoder_window\":0)", R"(\"decoder_window\":17)"), HasSubstr("above the model's"));
  EXPECT_THAT(Replaced(R"("voxrt.formats":"{)", R"("voxrt.formats":"[)"), HasSubstr("voxrt.formats is damaged"));
  EXPECT_THAT(Replaced(R"("voxrt.part":"whole")", R"("voxrt.part":"manifest")"), HasSubstr("voxrt.data"));
}

TEST_F(HostileArtifactTest, TensorsThatAreWrongAreNamed) {
  EXPECT_THAT(Replaced(R"("norm.weight":)", R"("xorm.weight":)"), HasSubstr("norm.weight"));
  EXPECT_THAT(Replaced(R"("layers.0.attention.wq.weight.scale":)", R"("layers.0.attention.wq.weight.skale":)"),
              HasSubstr("layers.0.attention.wq.weight"));
  EXPECT_THAT(Replaced(R"("params.json":)", R"("parans.json":)"), HasSubstr("no params.json"));
  EXPECT_THAT(Replaced(R"(\"layers.0.attention.wq.weight\":)", R"(\"layers.9.attention.wq.weight\":)"),
              HasSubstr("layers."));
}

TEST_F(HostileArtifactTest, AFlippedBitAnywhereInTheContentsIsFoundByVerifying) {
  const std::string path = folder_ / "bad.safetensors";
  EXPECT_TRUE(weights::VerifyArtifact(folder_ / "good.safetensors", "").ok());
  const size_t data = 8 + HeaderLength(good_);
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    std::string bytes = good_;
    const size_t at = data + random() % (bytes.size() - data);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    weights::WriteAll(path, bytes);
    const Status status = weights::VerifyArtifact(path, "", 1 + i % 3);
    EXPECT_EQ(status.code(), StatusCode::kInvalidModel) << at;
    EXPECT_THAT(status.message(), HasSubstr("the file is damaged")) << at;
  }
}

TEST_F(HostileArtifactTest, OnlyAnArtifactCanBeVerified) {
  const Status status = weights::VerifyArtifact(weights::TinyFolder() + "/consolidated.safetensors", "");
  EXPECT_EQ(status.code(), StatusCode::kInvalidModel);
  EXPECT_THAT(status.message(), HasSubstr("was not written by `voxrt export`"));
}

TEST_F(HostileArtifactTest, ScalesThatAreNotFiniteAreRefused) {
  const auto artifact = *Checkpoint::Open(folder_ / "good.safetensors", {});
  const weights::Tensor& scale = artifact->tensors().find("layers.0.attention.wq.weight.scale")->second;
  const auto& all = artifact->tensors();
  const std::byte* start = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
                             return a.second.data < b.second.data;
                           })->second.data;
  const uint64_t length = HeaderLength(good_);
  const size_t at = 8 + length + static_cast<size_t>(scale.data - start);
  for (const char* bits : {"\x80\x7f", "\xc0\x7f", "\x80\xff"}) {
    std::string bytes = good_;
    bytes.replace(at + 6, 2, bits, 2);
    EXPECT_THAT(MessageFor(bytes), HasSubstr("layers.0.attention.wq.weight.scale"));
  }
}

TEST_F(HostileArtifactTest, EveryTruncationIsRefused) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const size_t keep = i < 50 ? static_cast<size_t>(i) : random() % good_.size();
    EXPECT_NE(MessageFor(good_.substr(0, keep)), "") << keep;
  }
  EXPECT_NE(MessageFor(good_ + "x"), "");
}

TEST_F(HostileArtifactTest, RandomChangesOfTheHeaderNeverCrash) {
  const uint64_t length = HeaderLength(good_);
  std::mt19937 random(11);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good_;
    for (int change = 0; change < 1 + i % 4; ++change) bytes[random() % (8 + length)] = static_cast<char>(random());
    refused += MessageFor(bytes).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 150);
}

}  // namespace
}  // namespace voxrt::exporter
