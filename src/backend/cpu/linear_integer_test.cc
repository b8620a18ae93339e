// Products with int8 activations where a single activation row takes its weights in two streams: the bits of a batch,
// and the lowest of tied tokens, on every compiled instruction set this machine runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/targets_for_test.h"
#include "backend/stream.h"
#include "support/rig.h"
#include "support/weights.h"

namespace voxrt::backend::cpu {
namespace {

using quant::DType;
using quant::Format;
using quant::FormatKind;
using test::Matrix;
using test::Random;
using test::Rig;
using test::TestWeight;

class LinearInteger : public TargetTest {
 protected:
  void SetUp() override {
    TargetTest::SetUp();
    std::string why;
    rig_ = Rig::Open("cpu", test::SmallState(20, 20), &why);
    ASSERT_NE(rig_, nullptr) << why;
  }

  std::unique_ptr<PreparedLinear> Prepare(const std::vector<const TestWeight*>& blocks, LinearRole role) {
    LinearSpec spec{.name = "w", .role = role, .blocks = {}};
    for (const TestWeight* block : blocks) spec.blocks.push_back(block->block());
    auto made = rig_->device().Prepare(spec);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(made).value() : nullptr;
  }

  std::unique_ptr<Rig> rig_;
};

INSTANTIATE_TEST_SUITE_P(Targets, LinearInteger, testing::ValuesIn(RunnableTargets()), NameOfTarget);

TEST_P(LinearInteger, APairRowHasTheSameBitsAloneAndInABatch) {
  Random random(8);
  for (const Format& format : test::AllFormats()) {
    if (!format.int8_activations) continue;
    for (const auto& [shape_rows, cols] : {std::pair{75, 1280}, {40, 256}}) {
      const int64_t rows = shape_rows;  // a lambda may take it by reference
      SCOPED_TRACE(testing::Message() << FormatName(format) << " " << rows << "x" << cols);
      const TestWeight gate(format, rows, cols, true, random);
      const TestWeight up(format, rows, cols, false, random);
      const auto weight = Prepare({&gate, &up}, LinearRole::kGateUp);
      const auto multiply = [&](const Matrix& in) {
        const View v = rig_->Put(in);
        const View out = rig_->Poisoned(in.rows, rows);
        rig_->Run(nullptr, nullptr, [&](Stream& s) { s.LinearPair({.x = v, .weight = weight.get(), .out = out}); });
        return rig_->Get(out);
      };
      const Matrix x = random.Normals(6, cols);
      const Matrix all = multiply(x);
      for (int64_t row = 0; row < x.rows; ++row) {
        EXPECT_EQ(multiply(x.Rows(row, 1)).values, all.Rows(row, 1).values) << row;
      }
    }
  }
}

TEST_P(LinearInteger, TiesOfAHeadGoToTheLowestIdWhereverTheyLie) {
  constexpr int64_t kDim = 128;
  constexpr int64_t kRows = 203;
  Random random(9);
  const View gain = rig_->Put(random.Normals(1, kDim));
  const View in = rig_->Put(random.Normals(2, kDim));
  for (const Format& format : {Format{.kind = FormatKind::kInt8, .group = 0, .int8_activations = true},
                               Format{.kind = FormatKind::kInt4, .group = 32, .int8_activations = true}}) {
    SCOPED_TRACE(FormatName(format));
    const TestWeight w(format, kRows, kDim, false, random);
    // The token of the first of `rows` rows: one takes two streams, two do not.
    const auto best = [&](int rows) {
      const auto head = Prepare({&w}, LinearRole::kHead);
      BatchPlan plan = test::MakePlan({{.slot = 0, .rows = 2, .first_index = 0}}, 128);
      for (int r = 0; r < rows; ++r) plan.head_rows.push_back(r);
      const View normed = rig_->Poisoned(rows, kDim);
      const View tokens = rig_->PoisonedInts(rows);
      rig_->Run(nullptr, &plan, [&](Stream& s) {
        s.Head({.x = in, .gain = gain, .weight = head.get(), .normed = normed, .logits = {}, .token = tokens});
      });
      return static_cast<int64_t>(rig_->GetInts(tokens)[0]);
    };
    const int64_t source = best(2);
    ASSERT_EQ(best(1), source);
    const int64_t row_bytes = format.kind == FormatKind::kInt4 ? kDim / 2 : kDim;
    const int64_t groups = format.group == 0 ? 1 : kDim / format.group;
    auto* codes = static_cast<uint8_t*>(const_cast<void*>(w.weight().data));
    auto* scales = const_cast<uint16_t*>(w.weight().scale);
    // Copies of the best row come in from the end, each in another tile, stream or worker than those before.
    for (int64_t copy = kRows - 1; copy >= 0; copy -= 3) {
      std::copy_n(codes + source * row_bytes, row_bytes, codes + copy * row_bytes);
      std::copy_n(scales + source * groups, groups, scales + copy * groups);
      ASSERT_EQ(best(1), std::min(copy, source)) << copy;
      ASSERT_EQ(best(2), std::min(copy, source)) << copy;
    }
  }
}

}  // namespace
}  // namespace voxrt::backend::cpu
