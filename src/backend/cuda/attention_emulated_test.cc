// The attention kernel on the emulator: right against sums in fp64 on the stored K and V, and the same bits however
// rows are cut into calls, tiles and thread blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "backend/cuda/emulation/emulator.h"
#include "backend/cuda/kernels/attention.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/kv_int8.h"

namespace voxrt::cuda_kernels {
namespace {

constexpr int kSharedLimit = 226 * 1024;
constexpr int kCapacity = 256, kPages = kCapacity / kPageTokens;

uint16_t Bf16(float v) {
  const __nv_bfloat16 b = __float2bfloat16_rn(v);
  uint16_t bits;
  std::memcpy(&bits, &b, 2);
  return bits;
}

struct Case {
  int heads, kv_heads, head_dim, window;
  bool int8;
};

// Rows of one session in a call: positions [first, first + count).
struct Rows {
  int slot;
  int64_t first;
  int count;
};

template <int kHeadDim, bool kInt8>
void LaunchInstance(const AttentionParams& params, const AttentionPlan& plan) {
  AttentionParams p = WithPlan(params, plan);
  // All blocks with an item or more, one that is idle.
  const auto blocks = static_cast<unsigned>(std::min(plan.blocks, plan.items + 1));
  std::vector<float> workspace(static_cast<size_t>(plan.workspace_floats), NAN);
  std::vector<uint32_t> counters(static_cast<size_t>(plan.counters), 0u);
  p.workspace = workspace.data();
  p.counter = counters.data();
  auto run = [&](auto kernel) {
    cuda_emulation::Launch(blocks, kAttentionWarps * 32, plan.shared_bytes, 3, [&] { kernel(p); });
  };
  if (plan.q8 == 1) return run(AttentionKernel<kHeadDim, kInt8, 1>);
  run(AttentionKernel<kHeadDim, kInt8, 2>);
}

class AttentionEmulatedTest : public testing::TestWithParam<Case> {
 protected:
  static constexpr int kSlots = 3;

  void SetUp() override {
    const Case& c = GetParam();
    std::mt19937 random(9);
    std::normal_distribution<float> normal;
    const size_t tokens = static_cast<size_t>(kSlots * kPages) * 2 * static_cast<size_t>(c.kv_heads) * kPageTokens;
    const size_t values = tokens * static_cast<size_t>(c.head_dim);
    bf16_.resize(values);
    for (uint16_t& v : bf16_) v = Bf16(normal(random));
    if (c.int8) {
      codes_.resize(values);
      const auto dim = static_cast<size_t>(c.head_dim);
      std::vector<float> row(dim);
      for (size_t i = 0; i < tokens; ++i) {
        for (size_t d = 0; d < dim; ++d) row[d] = Bf16Bits(bf16_[i * dim + d]);
        scales_.push_back(backend::EncodeKvInt8(row, std::span(codes_).subspan(i * dim, dim)));
      }
    }
    for (int s = 0; s < kSlots; ++s)
      for (int i = 0; i < kPages; ++i) pages_.push_back(i * kSlots + (s + 1) % kSlots);
    q_seed_ = random();
  }

  int64_t Token(int slot, int64_t index, int kv, bool is_v) const {
    const Case& c = GetParam();
    const auto ring = static_cast<int>(index % kCapacity);
    const int page = pages_[static_cast<size_t>(slot * kPages + ring / kPageTokens)];
    return ((int64_t{page} * 2 + (is_v ? 1 : 0)) * c.kv_heads + kv) * kPageTokens + ring % kPageTokens;
  }
  double Stored(int slot, int64_t index, int kv, bool is_v, int d) const {
    const Case& c = GetParam();
    const int64_t token = Token(slot, index, kv, is_v);
    const auto at = static_cast<size_t>(token * c.head_dim + d);
    if (c.int8) return static_cast<double>(codes_[at]) * static_cast<double>(scales_[static_cast<size_t>(token)]);
    return static_cast<double>(Bf16Bits(bf16_[at]));
  }
  // Query of a position, the same in every call.
  std::vector<uint16_t> Query(int slot, int64_t index) const {
    const Case& c = GetParam();
    std::mt19937 random(static_cast<unsigned>(q_seed_ + static_cast<unsigned>(slot * 1000 + index)));
    std::normal_distribution<float> normal;
    std::vector<uint16_t> q(static_cast<size_t>(c.heads * c.head_dim));
    for (uint16_t& v : q) v = Bf16(normal(random));
    return q;
  }

  // One call; rows of the result in order. blocks_per_tile 0: as planned. own: keys of the call lie beside q, and in
  // the ring is something else.
  std::vector<std::vector<uint16_t>> Run(const std::vector<Rows>& sessions, int sms, int32_t own = kOwnInRing) {
    const Case& c = GetParam();
    const int positions = AttentionTilePositions(c.heads, c.kv_heads, c.head_dim, c.int8, kSharedLimit);
    const int64_t stride = int64_t{c.heads + 2 * c.kv_heads} * c.head_dim;
    std::vector<int32_t> slot, begin, tile_row, tile_rows;
    std::vector<int64_t> index, first;
    std::vector<uint16_t> q;
    std::vector<int8_t> own_codes;
    std::vector<float> own_scales;
    auto bf16 = bf16_;
    auto codes = codes_;
    auto scales = scales_;
    int most = 0;
    for (const Rows& s : sessions) {
      const auto start = static_cast<int32_t>(slot.size());
      for (int i = 0; i < s.count; ++i) {
        if (i % positions == 0) tile_row.push_back(start + i), tile_rows.push_back(std::min(positions, s.count - i));
        most = std::max(most, tile_rows.back());
        slot.push_back(s.slot), begin.push_back(start), index.push_back(s.first + i), first.push_back(s.first);
        const std::vector<uint16_t> row = Query(s.slot, s.first + i);
        q.insert(q.end(), row.begin(), row.end());
        for (int kv = 0; kv < 2 * c.kv_heads; ++kv) {
          const int64_t token = Token(s.slot, s.first + i, kv % c.kv_heads, kv >= c.kv_heads);
          for (int d = 0; d < c.head_dim; ++d) {
            const auto at = static_cast<size_t>(token * c.head_dim + d);
            q.push_back(c.int8 && own != kOwnToQuantize ? Bf16(NAN) : bf16_[at]);
            if (c.int8) own_codes.push_back(codes_[at]);
            if (own != kOwnInRing && c.int8) codes[at] = 77;
            if (own != kOwnInRing && !c.int8) bf16[at] = Bf16(NAN);
          }
          if (!c.int8) continue;
          own_scales.push_back(scales_[static_cast<size_t>(token)]);
          if (own != kOwnInRing) scales[static_cast<size_t>(token)] = NAN;
        }
      }
    }
    // Tokens that no row sees are poison: other places of the rings keep NaN.
    AttentionParams p;
    p.q = q.data(), p.q_stride = stride;
    std::vector<uint16_t> out(slot.size() * static_cast<size_t>(c.heads * c.head_dim), Bf16(NAN));
    p.out = out.data(), p.out_stride = c.heads * c.head_dim;
    p.heads = c.heads, p.window = c.window;
    p.cache = {c.int8 ? static_cast<void*>(codes.data()) : bf16.data(),
               c.int8 ? scales.data() : nullptr,
               pages_.data(),
               kPages,
               kCapacity,
               c.kv_heads,
               c.head_dim};
    p.own_rows = own, p.own_codes = own_codes.data(), p.own_scale = own_scales.data();
    p.row_slot = slot.data(), p.row_index = index.data(), p.row_first = first.data(), p.row_begin = begin.data();
    p.tile_row = tile_row.data(), p.tile_rows = tile_rows.data(), p.tiles = static_cast<int>(tile_row.size());
    p.softmax_scale_log2 = 1.4427f / std::sqrt(static_cast<float>(c.head_dim));
    const AttentionPlan plan =
        PlanAttention(c.heads, c.kv_heads, c.head_dim, c.int8, p.tiles, most, {sms, kSharedLimit});
    if (c.head_dim == 64) {
      c.int8 ? LaunchInstance<64, true>(p, plan) : LaunchInstance<64, false>(p, plan);
    } else {
      c.int8 ? LaunchInstance<128, true>(p, plan) : LaunchInstance<128, false>(p, plan);
    }
    if (own == kOwnToQuantize) {
      EXPECT_TRUE(codes == codes_) << "codes put into the ring";
      EXPECT_TRUE(scales == scales_) << "scales put into the ring";
    }
    std::vector<std::vector<uint16_t>> rows;
    const size_t width = out.size() / slot.size();
    for (size_t r = 0; r < slot.size(); ++r)
      rows.emplace_back(out.begin() + static_cast<long>(r * width), out.begin() + static_cast<long>((r + 1) * width));
    return rows;
  }

  std::vector<uint16_t> bf16_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
  std::vector<int32_t> pages_;
  uint64_t q_seed_ = 0;
};

TEST_P(AttentionEmulatedTest, EqualsSumsInDoublePrecision) {
  const Case& c = GetParam();
  const std::vector<Rows> sessions = {{0, 0, 3}, {1, 190, 4}, {2, 700, 1}};
  const auto rows = Run(sessions, 4);
  size_t r = 0;
  for (const Rows& s : sessions) {
    for (int i = 0; i < s.count; ++i, ++r) {
      const int64_t index = s.first + i;
      const std::vector<uint16_t> q = Query(s.slot, index);
      for (int head = 0; head < c.heads; ++head) {
        const int kv = head / (c.heads / c.kv_heads);
        std::vector<double> out(static_cast<size_t>(c.head_dim));
        double total = 0, largest = 0;
        for (int64_t key = std::max<int64_t>(0, index - c.window + 1); key <= index; ++key) {
          double score = 0;
          for (int d = 0; d < c.head_dim; ++d)
            score += static_cast<double>(Bf16Bits(q[static_cast<size_t>(head * c.head_dim + d)])) *
                     Stored(s.slot, key, kv, false, d);
          const double weight = std::exp2(score * 1.4427 / std::sqrt(static_cast<double>(c.head_dim)));
          total += weight;
          for (int d = 0; d < c.head_dim; ++d) {
            const double v = Stored(s.slot, key, kv, true, d);
            out[static_cast<size_t>(d)] += weight * v;
            largest = std::max(largest, std::fabs(v));
          }
        }
        for (int d = 0; d < c.head_dim; ++d) {
          const auto at = static_cast<size_t>(head * c.head_dim + d);
          const double expected = out[static_cast<size_t>(d)] / total;
          // Weights are bf16, or fp16 beside int8 values; the result is bf16.
          const double tolerance = c.int8 ? largest / 1024 + std::fabs(expected) / 256 : largest / 128;
          ASSERT_NEAR(static_cast<double>(Bf16Bits(rows[r][at])), expected, tolerance)
              << "row " << r << " head " << head << " d " << d;
        }
      }
    }
  }
}

TEST_P(AttentionEmulatedTest, TheSameBitsInEveryCut) {
  const std::vector<Rows> sessions = {{0, 37, 5}, {1, 186, kMostOwnRows}, {2, 508, 2}};
  const auto together = Run(sessions, 1);
  EXPECT_TRUE(together == Run(sessions, 1000)) << "tiles over more blocks";
  EXPECT_TRUE(together == Run(sessions, 40)) << "tiles over some blocks";
  EXPECT_TRUE(together == Run(sessions, 40, kOwnBeside)) << "keys of the call outside the ring";
  if (GetParam().int8) {
    EXPECT_TRUE(together == Run(sessions, 40, kOwnToQuantize)) << "keys of the call made int8 by the attention";
    EXPECT_TRUE(together == Run(sessions, 1, kOwnToQuantize)) << "keys of the call made int8 by the attention";
  }
  size_t r = 0;
  for (const Rows& s : sessions) {
    for (int i = 0; i < s.count; ++i, ++r)
      EXPECT_TRUE(together[r] == Run({{s.slot, s.first + i, 1}}, 132)[0]) << "row " << r << " alone";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionEmulatedTest,
                         testing::Values(Case{2, 2, 64, 150, false}, Case{2, 2, 64, 150, true},
                                         Case{8, 2, 128, 180, false}, Case{8, 2, 128, 180, true},
                                         Case{6, 2, 128, 90, true}),
                         [](const auto& test) { return "Case" + std::to_string(test.index); });

}  // namespace
}  // namespace voxrt::cuda_kernels
