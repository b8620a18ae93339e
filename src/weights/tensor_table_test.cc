#include "weights/tensor_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace voxrt::weights {
namespace {

using quant::DType;
using quant::Format;
using quant::FormatKind;
using ::testing::HasSubstr;

ModelConfig SmallConfig() {
  ModelConfig config;
  config.encoder = {
      .dim = 256, .layers = 2, .head_dim = 64, .hidden_dim = 512, .heads = 4, .kv_heads = 4, .window = 24};
  config.decoder = {
      .dim = 256, .layers = 2, .head_dim = 128, .hidden_dim = 512, .heads = 4, .kv_heads = 2, .window = 16};
  config.vocab_size = 1280;
  config.ada_dim = 32;
  return config;
}

// Validation looks at addresses, never at bytes.
alignas(64) const std::byte kSomewhere[64] = {};

Tensor Shaped(const std::string& name, DType dtype, std::vector<int64_t> shape) {
  Tensor tensor;
  tensor.stored_name = name;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.data = kSomewhere;
  tensor.bytes = static_cast<int64_t>(quant::DTypeBytes(dtype));
  for (int64_t size : tensor.shape) tensor.bytes *= size;
  return tensor;
}

struct Table {
  TensorMap tensors;
  FormatMap formats;

  void Put(const std::string& name, int64_t rows, int64_t cols, const Format& format) {
    formats[name] = format;
    tensors.erase(name);
    for (const StoredPart& part : StoredParts(name, rows, cols, format)) {
      tensors[part.name] = Shaped(part.name, part.dtype, part.shape);
    }
  }
};

Table FloatTable() {
  Table table;
  for (const TensorSpec& spec : ExpectedTensors(SmallConfig())) {
    if (!spec.optional) table.tensors[spec.name] = Shaped(spec.name, DType::kBF16, spec.shape);
  }
  return table;
}

std::string ErrorOf(const Table& table) {
  const Status status = ValidateTable(SmallConfig(), table.tensors, table.formats);
  return status.ok() ? "" : status.message();
}

const std::string kW1 = "layers.0.feed_forward.w1.weight";  // [512, 256]

TEST(TensorTable, TheFullModelHasItsPublishedTensorsAndParameters) {
  ModelConfig config;
  config.encoder = {
      .dim = 1280, .layers = 32, .head_dim = 64, .hidden_dim = 5120, .heads = 32, .kv_heads = 32, .window = 750};
  config.decoder = {
      .dim = 3072, .layers = 26, .head_dim = 128, .hidden_dim = 9216, .heads = 32, .kv_heads = 8, .window = 8192};
  config.vocab_size = 131072;
  config.ada_dim = 32;
  int64_t tensors = 0;
  int64_t values = 0;
  std::set<std::string> names;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    if (spec.optional) continue;
    ++tensors;
    int64_t elements = 1;
    for (int64_t size : spec.shape) elements *= size;
    values += elements;
  }
  EXPECT_EQ(tensors, 711);
  EXPECT_EQ(values, 4'429'679'360);
}

TEST(TensorTable, EveryFormatOfALinearIsAccepted) {
  const Format kFormats[] = {{.kind = FormatKind::kInt4, .group = 32},
                             {.kind = FormatKind::kInt4, .group = 128, .int8_activations = true},
                             {.kind = FormatKind::kInt8, .group = 0},
                             {.kind = FormatKind::kInt8, .group = 64},
                             {.kind = FormatKind::kInt4Tile, .group = 128}};
  for (const Format& format : kFormats) {
    Table table = FloatTable();
    table.Put(kW1, 512, 256, format);
    EXPECT_EQ(ErrorOf(table), "") << quant::FormatName(format);
    table.Put(std::string(kHeadName), 1280, 256, format);
    EXPECT_EQ(ErrorOf(table), "") << quant::FormatName(format);
  }
}

TEST(TensorTable, PartsOfQuantizedTensorsAreCheckedByName) {
  const Format int4{.kind = FormatKind::kInt4, .group = 32};
  Table table = FloatTable();
  table.Put(kW1, 512, 256, int4);
  Table damaged = table;
  damaged.tensors.erase(kW1 + ".scale");
  EXPECT_THAT(ErrorOf(damaged), HasSubstr(kW1 + ".scale is missing"));
  damaged = table;
  damaged.tensors[kW1 + ".scale"].shape = {512, 4};
  EXPECT_THAT(ErrorOf(damaged), HasSubstr(kW1 + ".scale is BF16 [512, 4], expected BF16 [512, 8] for 4w g32"));
  damaged = table;
  damaged.tensors[kW1].dtype = DType::kI8;
  EXPECT_THAT(ErrorOf(damaged), HasSubstr("is I8 [512, 128], expected U8 [512, 128]"));
  damaged = table;
  damaged.formats.erase(kW1);  // codes without a format
  EXPECT_THAT(ErrorOf(damaged), HasSubstr("is U8, expected F32, F16 or BF16"));
  damaged = FloatTable();
  damaged.tensors[kW1 + ".scale"] = Shaped(kW1 + ".scale", DType::kBF16, {512, 8});
  EXPECT_THAT(ErrorOf(damaged), HasSubstr("w1.weight.scale\" is not one of this model's"));
}

TEST(TensorTable, FormatsThatCannotHoldATensorAreRefused) {
  const auto error_of = [](const std::string& name, int64_t rows, int64_t cols, const Format& format) {
    return CheckFormat(name, rows, cols, format).message();
  };
  EXPECT_THAT(error_of("t", 8, 96, {.kind = FormatKind::kInt4, .group = 64}), HasSubstr("no multiple of the group"));
  EXPECT_THAT(error_of("t", 8, 96, {.kind = FormatKind::kInt4, .group = 48}), HasSubstr("must be 32, 64, 128 or 256"));
  EXPECT_THAT(error_of("t", 8, 96, {.kind = FormatKind::kInt4, .group = 0}), HasSubstr("must be 32, 64, 128 or 256"));
  EXPECT_THAT(error_of("t", 8, 96, {.kind = FormatKind::kInt8, .group = -32}), HasSubstr("must be 32"));
  EXPECT_THAT(error_of("t", 12, 128, {.kind = FormatKind::kInt4Tile, .group = 32}),
              HasSubstr("8 rows and 128 columns"));
  EXPECT_THAT(error_of("t", 8, 96, {.kind = FormatKind::kInt4Tile, .group = 32}), HasSubstr("8 rows and 128 columns"));
  EXPECT_THAT(error_of("t", 8, 96, {.kind = FormatKind::kFloat, .dtype = DType::kI8}), HasSubstr("not a float type"));
  EXPECT_EQ(error_of("t", 9, 96, {.kind = FormatKind::kInt4, .group = 32}), "");
  EXPECT_EQ(error_of("t", 9, 97, {.kind = FormatKind::kInt8, .group = 0}), "");
}

TEST(TensorTable, OnlyLinearsMayBeQuantized) {
  Table table = FloatTable();
  table.formats["norm.weight"] = {.kind = FormatKind::kInt8, .group = 0};
  EXPECT_THAT(ErrorOf(table), HasSubstr("norm.weight is stored as 8w, expected F32, F16 or BF16"));
}

TEST(TensorTable, AlignmentIsThatOfTheElement) {
  Table table = FloatTable();
  table.tensors["norm.weight"].data = kSomewhere + 1;
  EXPECT_THAT(ErrorOf(table), HasSubstr("norm.weight does not begin at a multiple of its element size"));
  table.tensors["norm.weight"].data = kSomewhere + 2;
  EXPECT_EQ(ErrorOf(table), "");
}

}  // namespace
}  // namespace voxrt::weights
