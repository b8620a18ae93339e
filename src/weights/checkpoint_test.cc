#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "support/root.h"
#include "weights/checkpoint_source.h"
#include "weights/test_checkpoints.h"

namespace voxrt::weights {
namespace {

using base::Json;
using quant::DType;
using ::testing::HasSubstr;

const std::string kNorm = "norm.weight";
const std::string kQuery = "layers.1.attention.wq.weight";

using CheckpointPtr = std::shared_ptr<const Checkpoint>;

CheckpointPtr Opened(const std::string& path) {
  Result<CheckpointPtr> checkpoint = Checkpoint::Open(path, {.threads = 2});
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  return checkpoint.ok() ? *checkpoint : nullptr;
}

std::string ErrorOf(const std::string& path, StatusCode code = StatusCode::kInvalidModel) {
  Result<CheckpointPtr> checkpoint = Checkpoint::Open(path, {.threads = 2});
  EXPECT_FALSE(checkpoint.ok());
  if (checkpoint.ok()) return "";
  EXPECT_EQ(checkpoint.status().code(), code) << checkpoint.status().message();
  EXPECT_EQ(checkpoint.status().message().find('\n'), std::string::npos);
  return checkpoint.status().message();
}

std::string ErrorAfter(const std::function<void(std::vector<StoredTensor>*)>& edit) {
  const TempFolder folder;
  WriteMistralFolder(folder, edit);
  return ErrorOf(folder.path());
}

std::string BytesOf(const Checkpoint& checkpoint, const std::string& name) {
  const Tensor& tensor = checkpoint.tensors().find(name)->second;
  return {reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes)};
}

TEST(Checkpoint, OpensTheBundledCheckpoints) {
  const CheckpointPtr tiny = Opened(TinyFolder());
  ASSERT_NE(tiny, nullptr);
  EXPECT_EQ(tiny->layout(), "mistral");
  EXPECT_EQ(tiny->rope_rows(), RopeRows::kAdjacent);
  EXPECT_EQ(tiny->config().decoder.dim, 256);
  EXPECT_EQ(tiny->tensors().size(), 81u);
  EXPECT_FALSE(tiny->Has(kHeadName));
  EXPECT_FALSE(tiny->file_changed());
  EXPECT_EQ(tiny->tekken_json(), ReadAll(TinyFolder() + "/tekken.json"));
  EXPECT_EQ(tiny->params_json(), ReadAll(TinyFolder() + "/params.json"));
  EXPECT_EQ(tiny->mapped_bytes(),
            static_cast<int64_t>(std::filesystem::file_size(TinyFolder() + "/consolidated.safetensors")));
  int64_t elements = 0;
  for (const auto& [name, tensor] : tiny->tensors()) elements += tensor.bytes / 2;
  EXPECT_EQ(tiny->parameters(), elements);
  ASSERT_NE(Opened(test::Root() + "/models/demo"), nullptr);
}

TEST(Checkpoint, LinearIsTheMappingAndValuesAreWidened) {
  const CheckpointPtr tiny = Opened(TinyFolder());
  const quant::HostLinear linear = tiny->Linear(kQuery);
  EXPECT_EQ(linear.rows, 512);
  EXPECT_EQ(linear.cols, 256);
  EXPECT_EQ(linear.format, (quant::Format{.kind = quant::FormatKind::kFloat, .dtype = DType::kBF16}));
  EXPECT_EQ(linear.data, tiny->tensors().find(kQuery)->second.data);
  const std::vector<float> norm = tiny->Values(kNorm);
  ASSERT_EQ(norm.size(), 256u);
  const std::string raw = BytesOf(*tiny, kNorm);
  uint16_t last;
  std::memcpy(&last, raw.data() + 510, 2);
  EXPECT_EQ(norm[255], quant::BF16ToF32(last));
}

TEST(Checkpoint, TheProgressEndsAtTheTotal) {
  int64_t last = 0;
  int64_t total = 0;
  OpenOptions options{.threads = 2};
  options.progress = [&](int64_t done, int64_t all) {
    EXPECT_LE(done, all);
    last = done;
    total = all;
  };
  ASSERT_TRUE(Checkpoint::Open(TinyFolder(), options).ok());
  EXPECT_GT(total, 1000000);
  EXPECT_EQ(last, total);
}

// Stores every tensor as `dtype`.
void Convert(std::vector<StoredTensor>* tensors, DType dtype) {
  for (StoredTensor& tensor : *tensors) {
    const size_t count = tensor.data.size() / 2;
    std::string data(count * quant::DTypeBytes(dtype), '\0');
    for (size_t i = 0; i < count; ++i) {
      const float value = quant::LoadFloat(tensor.data.data(), DType::kBF16, i);
      const uint16_t half = quant::F32ToF16(value);
      std::memcpy(data.data() + i * quant::DTypeBytes(dtype),
                  dtype == DType::kF32 ? static_cast<const void*>(&value) : &half, quant::DTypeBytes(dtype));
    }
    tensor.dtype = dtype;
    tensor.data = std::move(data);
  }
}

TEST(Checkpoint, FullAndHalfFloatsAreAccepted) {
  const std::vector<float> expected = Opened(TinyFolder())->Values(kNorm);
  for (DType dtype : {DType::kF32, DType::kF16}) {
    const TempFolder folder;
    WriteMistralFolder(folder, [&](std::vector<StoredTensor>* tensors) { Convert(tensors, dtype); });
    const CheckpointPtr checkpoint = Opened(folder.path());
    ASSERT_NE(checkpoint, nullptr);
    EXPECT_EQ(checkpoint->Values(kNorm), expected);
    EXPECT_EQ(checkpoint->Linear(kQuery).format.dtype, dtype);
  }
}

TEST(Checkpoint, ItsOwnOutputHeadIsKept) {
  const TempFolder folder;
  WriteMistralFolder(folder, [](std::vector<StoredTensor>* tensors) {
    StoredTensor head = *FindTensor(tensors, std::string(kEmbeddingName));
    head.name = kHeadName;
    tensors->push_back(head);
  });
  const CheckpointPtr checkpoint = Opened(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_TRUE(checkpoint->Has(kHeadName));
  EXPECT_EQ(checkpoint->Linear(kHeadName).rows, 1280);
}

TEST(Checkpoint, MissingUnexpectedAndMisshapenTensorsAreNamed) {
  using Tensors = std::vector<StoredTensor>;
  EXPECT_THAT(ErrorAfter([](Tensors* t) { std::erase_if(*t, [](const StoredTensor& x) { return x.name == kNorm; }); }),
              HasSubstr("tensor norm.weight is missing"));
  EXPECT_THAT(ErrorAfter([](Tensors* t) {
                std::erase_if(*t, [](const StoredTensor& x) { return x.name.starts_with("layers.2."); });
              }),
              HasSubstr("tensor layers.2.attention_norm.weight and 10 more are missing"));
  EXPECT_THAT(ErrorAfter([](Tensors* t) {
                t->push_back({"vision.weight", DType::kBF16, {1}, "ab"});
              }),
              HasSubstr("tensor \"vision.weight\" is not one of this model's"));
  EXPECT_THAT(ErrorAfter([](Tensors* t) {
                FindTensor(t, kQuery)->shape = {256, 512};
              }),
              HasSubstr("layers.1.attention.wq.weight has shape [256, 512], expected [512, 256]"));
  EXPECT_THAT(ErrorAfter([](Tensors* t) {
                StoredTensor* norm = FindTensor(t, kNorm);
                norm->dtype = DType::kI8;
                norm->data.resize(256);
              }),
              HasSubstr("tensor norm.weight is I8, expected F32, F16 or BF16"));
}

TEST(Checkpoint, AMisalignedTensorIsRefused) {
  // An odd number of bytes first; layouts with bytes at all belong to another model, so it needs its own table.
  const std::string message = ErrorAfter([](std::vector<StoredTensor>* tensors) {
    tensors->insert(tensors->begin(), {"odd", DType::kU8, {1}, "x"});
  });
  EXPECT_THAT(message, HasSubstr("does not begin at a multiple of its element size"));
}

TEST(Checkpoint, NanAndInfinityAreFoundAndNamed) {
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const float value : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      const std::string message = ErrorAfter([&](std::vector<StoredTensor>* tensors) {
        Convert(tensors, DType::kF32);
        StoredTensor* query = FindTensor(tensors, kQuery);
        std::memcpy(query->data.data() + 512 * 256 * 4 - 4, &value, 4);
        if (dtype == DType::kF32) return;
        for (StoredTensor& tensor : *tensors) {
          std::string data;
          for (size_t i = 0; i < tensor.data.size() / 4; ++i) {
            const float x = quant::LoadFloat(tensor.data.data(), DType::kF32, i);
            const uint16_t bits = dtype == DType::kF16 ? quant::F32ToF16(x) : quant::F32ToBF16(x);
            data.append(reinterpret_cast<const char*>(&bits), 2);
          }
          tensor.data = data;
          tensor.dtype = dtype;
        }
      });
      EXPECT_THAT(message, HasSubstr(std::string("tensor layers.1.attention.wq.weight holds ") +
                                     (std::isnan(value) ? "NaN" : "infinity") + " at element 131071"));
    }
  }
}

TEST(Checkpoint, BrokenDownloadsAreDescribed) {
  const TempFolder folder;
  WriteMistralFolder(folder);
  const std::string weights = folder / kConsolidatedFile;
  const std::string good = ReadAll(weights);
  const auto error_with = [&](const std::string& bytes) {
    WriteAll(weights, bytes);
    std::string message = ErrorOf(folder.path());
    EXPECT_THAT(message, HasSubstr(weights));
    return message;
  };
  EXPECT_THAT(error_with("version https://git-lfs.github.com/spec/v1\noid "
                         "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b125\nsize 8\n"),
              HasSubstr("Git LFS pointer"));
  EXPECT_THAT(error_with("<!doctype html>\n<html><body>Sign in</body></html>"), HasSubstr("HTML"));
  EXPECT_THAT(error_with(""), HasSubstr("empty"));
  EXPECT_THAT(error_with("\x13\x9a\xfe\x01\x77\x20\xd1\x44"), HasSubstr("download it again"));
  EXPECT_THAT(error_with(good.substr(0, 1024)), HasSubstr("cut off inside its header"));
  EXPECT_THAT(error_with(good.substr(0, good.size() / 2)), HasSubstr("cut off"));
  EXPECT_THAT(error_with(good.substr(0, good.size() - 1)), HasSubstr("cut off"));
  EXPECT_THAT(error_with(good + "x"), HasSubstr("1 bytes longer"));
  EXPECT_THAT(error_with(std::string("\0\0\0\0\0\0\0\x80", 8) + good.substr(8)), HasSubstr("9223372036854775808"));
  WriteAll(weights, good);
  EXPECT_NE(Opened(folder.path()), nullptr);
}

TEST(Checkpoint, MissingFilesAreNamed) {
  for (const char* name : {kParamsFile, kConsolidatedFile, kTekkenFile}) {
    const TempFolder folder;
    WriteMistralFolder(folder);
    std::filesystem::remove(folder / name);
    EXPECT_THAT(ErrorOf(folder.path()), HasSubstr(std::string("no ") + name)) << name;
  }
  const TempFolder empty;
  EXPECT_THAT(ErrorOf(empty.path(), StatusCode::kNotFound),
              HasSubstr("holds no model: expected consolidated.safetensors"));
  EXPECT_THAT(ErrorOf(empty / "absent", StatusCode::kNotFound), HasSubstr("no such file or directory"));
  EXPECT_THAT(ErrorOf(TinyFolder() + "/tekken.json"), HasSubstr("JSON text, not the weights"));
}

TEST(Checkpoint, AWrongConfigIsNoticed) {
  const TempFolder folder;
  WriteMistralFolder(folder);
  Json params = *base::ParseJson(ReadAll(folder / kParamsFile));
  params["n_layers"] = 4;
  WriteAll(folder / kParamsFile, params.Dump());
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("layers.3.attention_norm.weight and 10 more are missing"));
  params["n_layers"] = 3;
  params["hidden_dim"] = 1024;
  WriteAll(folder / kParamsFile, params.Dump());
  EXPECT_THAT(ErrorOf(folder.path()),
              HasSubstr("layers.0.feed_forward.w1.weight has shape [512, 256], expected [1024, 256]"));
  WriteAll(folder / kParamsFile, R"({"dim":3072,"n_layers":30,"multimodal":{}})");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("Voxtral-Mini-3B-2507"));
}

// Runs in a child process; exit code 0 = as promised.
void ReadAfterTruncation(const std::string& folder) {
  const CheckpointPtr checkpoint = *Checkpoint::Open(folder, {.threads = 2});
  if (checkpoint->file_changed()) std::_Exit(10);
  if (truncate((folder + "/" + kConsolidatedFile).c_str(), 4096) != 0) std::_Exit(11);
  for (const auto& [name, tensor] : checkpoint->tensors()) (void)checkpoint->Values(name);
  std::_Exit(checkpoint->file_changed() ? 0 : 12);
}

TEST(Checkpoint, AFileThatShrinksWhileMappedSetsTheFlag) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TempFolder folder;
  WriteMistralFolder(folder);
  EXPECT_EXIT(ReadAfterTruncation(folder.path()), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace voxrt::weights
