#include "export/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/sha.h"
#include "weights/artifact_metadata.h"
#include "weights/checkpoint_source.h"
#include "weights/test_checkpoints.h"

namespace voxrt::exporter {
namespace {

using ::testing::HasSubstr;
using weights::Checkpoint;
using weights::TempFolder;

constexpr char kProducer[] = "voxrt test";

class ExportTest : public ::testing::Test {
 protected:
  static ExportOptions Options(const TempFolder& folder, const std::string& model = weights::TinyFolder()) {
    ExportOptions options;
    options.model_path = model;
    options.output_path = folder / "model.safetensors";
    options.threads = 2;
    return options;
  }

  static Result<ExportReport> Export(const ExportOptions& options) {
    VOXRT_RETURN_IF_ERROR(ValidateOptions(options));
    VOXRT_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(options.model_path, {}));
    VOXRT_ASSIGN_OR_RETURN(const ExportPlan plan, MakePlan(options, *checkpoint));
    return WriteArtifact(options, plan, *checkpoint, kProducer, {});
  }

  static std::shared_ptr<const Checkpoint> Load(const std::string& path, const std::string& data_path = "") {
    auto opened = Checkpoint::Open(path, {.data_path = data_path});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return opened.ok() ? *opened : nullptr;
  }

  static std::string LoadError(const std::string& path, const std::string& data_path = "") {
    auto opened = Checkpoint::Open(path, {.data_path = data_path});
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? "" : opened.status().message();
  }
};

ExportOptions Quantized(ExportOptions options) {
  options.linear = {"8da4w", 32, ""};
  options.encoder = {"8w", kAutoGroup, ""};
  options.embedding = {"8w", kAutoGroup, ""};
  return options;
}

double RelativeRms(const quant::HostLinear& a, const quant::HostLinear& b) {
  double error = 0.0;
  double power = 0.0;
  for (int64_t row = 0; row < a.rows; ++row) {
    for (int64_t col = 0; col < a.cols; ++col) {
      const double x = static_cast<double>(quant::Dequantize(a, row, col));
      const double d = x - static_cast<double>(quant::Dequantize(b, row, col));
      error += d * d;
      power += x * x;
    }
  }
  return std::sqrt(error / power);
}

TEST_F(ExportTest, UnquantizedArtifactHoldsTheCheckpointBitForBit) {
  const TempFolder folder;
  ASSERT_TRUE(Export(Options(folder)).ok());
  const auto source = Load(weights::TinyFolder());
  const auto artifact = Load(folder / "model.safetensors");
  ASSERT_NE(artifact, nullptr);
  EXPECT_EQ(artifact->layout(), "artifact");
  EXPECT_EQ(artifact->default_delay_tokens(), 6);
  EXPECT_EQ(artifact->params_json(), source->params_json());
  EXPECT_EQ(artifact->tekken_json(), source->tekken_json());
  ASSERT_EQ(artifact->tensors().size(), source->tensors().size());
  for (const auto& [name, tensor] : source->tensors()) {
    const auto found = artifact->tensors().find(name);
    ASSERT_NE(found, artifact->tensors().end()) << name;
    ASSERT_EQ(found->second.bytes, tensor.bytes);
    EXPECT_TRUE(std::equal(tensor.data, tensor.data + tensor.bytes, found->second.data)) << name;
  }
  EXPECT_NE(Load(folder.path()), nullptr) << "a folder with the artifact is a model too";
}

TEST_F(ExportTest, EveryFormatReadsBackWithTheReportedError) {
  const std::string name = "layers.1.feed_forward.w1.weight";
  const auto source = Load(weights::TinyFolder());
  for (const char* type : {"4w", "8w", "8da4w", "8da8w", "tile"}) {
    SCOPED_TRACE(type);
    const TempFolder folder;
    ExportOptions options = Options(folder);
    options.linear = {type, kAutoGroup, ""};
    if (options.linear.type == "tile") {
      options.backend = "cuda";
      options.linear = {"4w", 64, kTilePacking};
    }
    auto report = Export(options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    const auto artifact = Load(options.output_path);
    ASSERT_NE(artifact, nullptr);
    const quant::HostLinear stored = artifact->Linear(name);
    EXPECT_EQ(stored.format, FormatOf(options.linear));
    const auto line = std::find_if(report->tensors.begin(), report->tensors.end(),
                                   [&](const TensorReport& t) { return t.name == name; });
    ASSERT_NE(line, report->tensors.end());
    EXPECT_GT(line->relative_rms, 0.0);
    EXPECT_NEAR(RelativeRms(source->Linear(name), stored), line->relative_rms, 1e-6);
    ASSERT_TRUE(artifact->Has(weights::kHeadName)) << "the head follows --qlinear, the table does not";
    EXPECT_NEAR(RelativeRms(source->Linear(weights::kEmbeddingName), artifact->Linear(weights::kHeadName)),
                report->tensors.back().relative_rms, 1e-6);
  }
}

TEST_F(ExportTest, AnHuggingFaceSourceGivesTheSameCodes) {
  const TempFolder mistral;
  const TempFolder source;
  const TempFolder hf;
  weights::WriteHuggingFaceFolder(source, weights::HuggingFaceTensors(weights::PrefixStyle::kNew), 2);
  ASSERT_TRUE(Export(Quantized(Options(mistral))).ok());
  auto report = Export(Quantized(Options(hf, source.path())));
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto a = Load(mistral / "model.safetensors");
  const auto b = Load(hf / "model.safetensors");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(b->rope_rows(), weights::RopeRows::kAdjacent);
  ASSERT_EQ(a->tensors().size(), b->tensors().size());
  for (const auto& [name, tensor] : a->tensors()) {
    const auto& other = b->tensors().find(name)->second;
    ASSERT_EQ(tensor.bytes, other.bytes) << name;
    EXPECT_TRUE(std::equal(tensor.data, tensor.data + tensor.bytes, other.data)) << name;
  }
}

TEST_F(ExportTest, TheSameCommandGivesTheSameBytes) {
  const TempFolder a;
  const TempFolder b;
  ExportOptions first = Quantized(Options(a));
  ExportOptions second = Quantized(Options(b));
  second.threads = 1;
  ASSERT_TRUE(Export(first).ok());
  ASSERT_TRUE(Export(second).ok());
  EXPECT_TRUE(weights::ReadAll(first.output_path) == weights::ReadAll(second.output_path));
}

TEST_F(ExportTest, TheFileSaysWhatItIs) {
  const TempFolder folder;
  ExportOptions options = Quantized(Options(folder));
  options.delay_tokens = 12;
  options.sliding_window = 13;
  options.streaming = true;
  auto report = Export(options);
  ASSERT_TRUE(report.ok());
  const weights::SafetensorsFile file = *weights::OpenSafetensors(options.output_path);
  auto metadata = weights::ParseArtifactMetadata(file.header);
  ASSERT_TRUE(metadata.ok()) << metadata.status().message();
  EXPECT_EQ(metadata->producer, kProducer);
  EXPECT_EQ(metadata->command, CommandOf(options));
  EXPECT_EQ(metadata->quantizer, "refit");
  EXPECT_EQ(metadata->delay_tokens, 12);
  EXPECT_TRUE(metadata->streaming);
  ASSERT_EQ(metadata->sources.size(), 3u);
  EXPECT_EQ(metadata->sources[0].file, "consolidated.safetensors");
  const std::string source = weights::ReadAll(weights::TinyFolder() + "/consolidated.safetensors");
  EXPECT_EQ(metadata->sources[0].sha256, base::Sha256Hex(std::as_bytes(std::span(source))));
  // Falling alignment, files of bytes last; the contents' hash can be recomputed.
  size_t before = 8;
  std::vector<std::string> hashes;
  for (const auto& entry : file.header.entries) {
    EXPECT_LE(quant::DTypeBytes(*entry.dtype), before);
    before = quant::DTypeBytes(*entry.dtype);
    const auto bytes = file.file->bytes().subspan(static_cast<size_t>(file.header.data_offset + entry.begin),
                                                  static_cast<size_t>(entry.end - entry.begin));
    if (entry.name != weights::kArtifactHash) hashes.push_back(base::Sha256Hex(bytes));
  }
  EXPECT_EQ(file.header.entries.back().name, weights::kArtifactHash);
  EXPECT_EQ(weights::CombineTensorHashes(hashes), report->sha256);
  EXPECT_EQ(Load(options.output_path)->config().decoder.window, 13);
}

TEST_F(ExportTest, AHeadThatSharesTheEmbeddingIsThereUnderItsOwnFormat) {
  const TempFolder folder;
  ExportOptions options = Quantized(Options(folder));
  options.head = {"8da8w", kAutoGroup, ""};
  ASSERT_TRUE(Export(options).ok());
  const auto artifact = Load(options.output_path);
  ASSERT_NE(artifact, nullptr);
  const quant::HostLinear head = artifact->Linear(weights::kHeadName);
  const quant::HostLinear table = artifact->Linear(weights::kEmbeddingName);
  EXPECT_EQ(head.data, table.data);
  EXPECT_TRUE(head.format.int8_activations);
  EXPECT_FALSE(table.format.int8_activations);
  options.head = {"8w", kAutoGroup, ""};
  ASSERT_TRUE(Export(options).ok());
  EXPECT_FALSE(Load(options.output_path)->Has(weights::kHeadName)) << "tied: the embedding is the head";
}

TEST_F(ExportTest, ManifestAndDataFile) {
  const TempFolder folder;
  ExportOptions options = Quantized(Options(folder));
  options.data_path = folder / "weights.bin";
  ASSERT_TRUE(Export(options).ok());
  const TempFolder whole;
  ASSERT_TRUE(Export(Quantized(Options(whole))).ok());
  const auto pair = Load(options.output_path);
  const auto one = Load(whole / "model.safetensors");
  ASSERT_TRUE(pair != nullptr && one != nullptr);
  EXPECT_EQ(pair->tensors().size(), one->tensors().size());
  EXPECT_LT(weights::ReadAll(options.output_path).size(), 200000u);

  EXPECT_THAT(LoadError(options.data_path), HasSubstr("name its manifest instead"));
  const std::string moved = folder / "moved.bin";
  std::rename(options.data_path.c_str(), moved.c_str());
  EXPECT_THAT(LoadError(options.output_path), HasSubstr("--data-path"));
  EXPECT_NE(Load(options.output_path, moved), nullptr);
  EXPECT_THAT(LoadError(whole / "model.safetensors", moved), HasSubstr("leave out --data-path"));

  std::string data = weights::ReadAll(moved);
  weights::WriteAll(moved, data.substr(0, data.size() - 1));
  EXPECT_THAT(LoadError(options.output_path, moved), HasSubstr("moved.bin"));
  data.back() = data.back() == '0' ? '1' : '0';
  weights::WriteAll(moved, data);
  EXPECT_THAT(LoadError(options.output_path, moved), HasSubstr("different exports"));
}

TEST_F(ExportTest, NothingIsLeftBehindWhenItFails) {
  const TempFolder source;
  weights::WriteMistralFolder(source);
  const TempFolder folder;
  ExportOptions options = Options(folder, source.path());
  options.encoder = {"8w", 256, ""};
  EXPECT_FALSE(Export(options).ok());
  options = Options(folder, source.path());
  options.output_path = folder / "no/such/folder/model.safetensors";
  auto report = Export(options);
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("no/such/folder"));
  EXPECT_EQ(std::system(("test -z \"$(ls -A " + folder.path() + ")\"").c_str()), 0) << "files were left";
}

TEST_F(ExportTest, CancellingLeavesNothingBehind) {
  const TempFolder folder;
  const ExportOptions options = Quantized(Options(folder));
  const auto checkpoint = Load(options.model_path);
  int calls = 0;
  auto report =
      WriteArtifact(options, *MakePlan(options, *checkpoint), *checkpoint, kProducer, [&](int64_t done, int64_t total) {
        EXPECT_LE(done, total);
        return ++calls < 5;
      });
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(std::system(("test -z \"$(ls -A " + folder.path() + ")\"").c_str()), 0) << "files were left";
}

TEST_F(ExportTest, ArtifactsAreNotExportedAgain) {
  const TempFolder folder;
  ASSERT_TRUE(Export(Options(folder)).ok());
  const TempFolder again;
  auto report = Export(Options(again, folder / "model.safetensors"));
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("exported artifact already"));
}

TEST_F(ExportTest, OtherFloatTypesBecomeBf16UnlessFp32IsAskedFor) {
  const TempFolder source;
  weights::WriteMistralFolder(source, [](std::vector<weights::StoredTensor>* tensors) {
    weights::StoredTensor* norm = weights::FindTensor(tensors, "norm.weight");
    std::string wide;
    for (size_t i = 0; i < norm->data.size(); i += 2) wide += std::string(2, '\0') + norm->data.substr(i, 2);
    norm->data = wide;
    norm->dtype = quant::DType::kF32;
  });
  const TempFolder folder;
  ExportOptions options = Options(folder, source.path());
  ASSERT_TRUE(Export(options).ok());
  EXPECT_EQ(Load(options.output_path)->tensors().find("norm.weight")->second.dtype, quant::DType::kBF16);
  EXPECT_EQ(Load(options.output_path)->Values("norm.weight"), Load(weights::TinyFolder())->Values("norm.weight"));
  options.dtype = "fp32";
  ASSERT_TRUE(Export(options).ok());
  EXPECT_EQ(Load(options.output_path)->tensors().find("norm.weight")->second.dtype, quant::DType::kF32);
}

TEST_F(ExportTest, ReportIsJson) {
  const TempFolder folder;
  auto report = Export(Quantized(Options(folder)));
  ASSERT_TRUE(report.ok());
  auto json = base::ParseJson(ReportJson(*report));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->Find("tensors")->AsArray()->size(), report->tensors.size());
  EXPECT_EQ(json->Find("artifact_bytes")->AsInt(), report->artifact_bytes);
}

}  // namespace
}  // namespace voxrt::exporter
