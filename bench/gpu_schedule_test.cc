// A stream alone = in 200 random schedules, bit for bit: whole live ticks of a small synthetic model on the GPU,
// sessions that join, pause, change places in the batch and leave. And graphs = eager launches = plain edges.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>

#include "backend/cuda/stream.h"
#include "backend/registry.h"
#include "gpu_model.h"

namespace voxrt::bench {
namespace {

constexpr int kSlots = 6;
constexpr int64_t kTicks = 30;  // both rings wrap

SyntheticConfig SmallConfig(quant::DType kv) {
  SyntheticConfig config;
  config.encoder = {.dim = 128, .layers = 3, .heads = 4, .kv_heads = 4, .head_dim = 64, .hidden = 512, .window = 24};
  config.decoder = {.dim = 256, .layers = 3, .heads = 4, .kv_heads = 2, .head_dim = 128, .hidden = 512, .window = 16};
  config.vocab = 1280;
  config.kv = kv;
  config.max_sessions = kSlots;
  config.max_encoder_rows = 4 * kSlots;
  config.max_decoder_rows = kSlots;
  return config;
}

class GpuScheduleTest : public testing::TestWithParam<quant::DType> {
 protected:
  void SetUp() override {
    auto device = backend::OpenDevice("cuda", {});
    if (!device.ok()) GTEST_SKIP() << "no CUDA device: " << device.status().message();
    device_ = *std::move(device);
    auto model = SyntheticModel::Create(*device_, SmallConfig(GetParam()));
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *std::move(model);
  }

  cuda::CudaStream& stream() { return dynamic_cast<cuda::CudaStream&>(model_->stream()); }
  // Residual rows after a tick, one vector per session, and its token.
  std::vector<std::vector<float>> Tick(const std::vector<SyntheticModel::Row>& rows) {
    model_->Tick(rows);
    std::vector<int32_t> tokens;
    std::vector<float> hidden;
    EXPECT_TRUE(model_->Tokens(&tokens).ok());
    EXPECT_TRUE(model_->Hidden(static_cast<int64_t>(rows.size()), &hidden).ok());
    std::vector<std::vector<float>> result;
    const size_t dim = hidden.size() / rows.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      result.emplace_back(hidden.begin() + static_cast<long>(i * dim),
                          hidden.begin() + static_cast<long>((i + 1) * dim));
      result.back().push_back(static_cast<float>(tokens[i]));
    }
    return result;
  }
  std::vector<std::vector<std::vector<float>>> Alone() {
    std::vector<std::vector<std::vector<float>>> all(kSlots);
    for (int slot = 0; slot < kSlots; ++slot) {
      model_->state().Clear(slot);
      for (int64_t tick = 0; tick < kTicks; ++tick) all[static_cast<size_t>(slot)].push_back(Tick({{slot, tick}})[0]);
    }
    return all;
  }
  static bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  std::unique_ptr<backend::Device> device_;
  std::unique_ptr<SyntheticModel> model_;
};

TEST_P(GpuScheduleTest, AStreamAloneEqualsTheStreamIn200RandomSchedules) {
  const auto alone = Alone();
  for (const auto& session : alone) {
    for (const auto& row : session) {
      for (const float value : row) ASSERT_TRUE(std::isfinite(value));
    }
  }
  std::mt19937 random(7);
  // Fewer where time is short.
  const char* wanted = std::getenv("VOXRT_TEST_SCHEDULES");
  const int schedules = wanted != nullptr ? std::atoi(wanted) : 200;
  for (int schedule = 0; schedule < schedules; ++schedule) {
    int64_t next[kSlots] = {};
    for (int slot = 0; slot < kSlots; ++slot) model_->state().Clear(slot);
    for (int call = 0; call < 14; ++call) {
      std::vector<SyntheticModel::Row> rows;
      for (int slot = 0; slot < kSlots; ++slot) {
        if (random() % 3 != 0 && next[slot] < kTicks) rows.push_back({slot, next[slot]++});
      }
      if (rows.empty()) continue;
      std::shuffle(rows.begin(), rows.end(), random);
      const auto result = Tick(rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_TRUE(SameBits(result[i], alone[static_cast<size_t>(rows[i].slot)][static_cast<size_t>(rows[i].tick)]))
            << "schedule " << schedule << " call " << call << " slot " << rows[i].slot << " tick " << rows[i].tick
            << " of " << rows.size();
      }
    }
  }
}

TEST_P(GpuScheduleTest, GraphsEagerLaunchesAndPlainEdgesGiveTheSameBits) {
  const auto graphs = Alone();
  ASSERT_GT(stream().graphs(), 0);
  stream().SetEager(true);
  EXPECT_TRUE(graphs == Alone()) << "eager launches";
  ASSERT_TRUE(model_->Restart().ok());
  stream().SetPlainEdges(true);
  EXPECT_TRUE(graphs == Alone()) << "plain edges";
}

INSTANTIATE_TEST_SUITE_P(Caches, GpuScheduleTest, testing::Values(quant::DType::kBF16, quant::DType::kI8),
                         [](const auto& test) { return test.param == quant::DType::kI8 ? "int8" : "bf16"; });

}  // namespace
}  // namespace voxrt::bench
