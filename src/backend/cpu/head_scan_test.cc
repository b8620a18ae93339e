// The scan of a float head: its bound holds, it excludes what it should, and its tokens are those of the whole head, on
// every compiled instruction set this machine runs.
#include "backend/cpu/head_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/targets_for_test.h"
#include "backend/stream.h"
#include "base/thread_pool.h"
#include "support/rig.h"

namespace voxrt::backend::cpu {
namespace {

using quant::DType;
using test::Matrix;
using test::Random;
using test::Rig;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A head [rows, cols] stored as `dtype`.
struct Head {
  Head(const Matrix& values, DType dtype)
      : type(dtype), rows(values.rows), cols(values.cols), bytes(test::EncodeFloats(values.values, dtype)) {}
  quant::HostLinear weight() const {
    return {.format = {.kind = quant::FormatKind::kFloat, .dtype = type},
            .rows = rows,
            .cols = cols,
            .data = bytes.data(),
            .scale = nullptr};
  }
  DType type;
  int64_t rows;
  int64_t cols;
  std::vector<std::byte> bytes;
};

struct Case {
  const char* name;
  std::function<void(Random&, Matrix* head, Matrix* x)> change;
};

float& Any(Random& random, Matrix* m) { return m->at(random.Below(m->rows), random.Below(m->cols)); }

// What makes a bound loose, an answer close, or arithmetic special.
std::vector<Case> Cases() {
  return {
      {"plain", [](Random&, Matrix*, Matrix*) {}},
      {"outliers in the input",
       [](Random& random, Matrix*, Matrix* x) {
         for (int i = 0; i < 3; ++i) Any(random, x) *= 1000.0f;
       }},
      {"outliers in the head",
       [](Random& random, Matrix* head, Matrix*) {
         for (int i = 0; i < 40; ++i) Any(random, head) *= 300.0f;
       }},
      {"rows that differ in their last bits",
       [](Random& random, Matrix* head, Matrix*) {
         const int64_t source = random.Below(head->rows);
         for (int64_t n = 0; n < head->rows; n += 3) {
           for (int64_t k = 0; k < head->cols; ++k) head->at(n, k) = head->at(source, k);
           head->at(n, random.Below(head->cols)) *= 1.01f;
         }
       }},
      {"all rows equal",
       [](Random&, Matrix* head, Matrix*) {
         for (int64_t n = 1; n < head->rows; ++n) {
           for (int64_t k = 0; k < head->cols; ++k) head->at(n, k) = head->at(0, k);
         }
       }},
      {"rows of every length",
       [](Random& random, Matrix* head, Matrix*) {
         for (int64_t n = 0; n < head->rows; ++n) {
           const float scale = std::exp(random.Uniform(-12.0f, 12.0f));
           for (int64_t k = 0; k < head->cols; ++k) head->at(n, k) *= scale;
         }
       }},
      {"one direction",
       [](Random&, Matrix* head, Matrix* x) {
         for (int64_t k = 1; k < head->cols; ++k) {
           for (int64_t n = 0; n < head->rows; ++n) head->at(n, k) = 0.0f;
           for (int64_t r = 0; r < x->rows; ++r) x->at(r, k) = 0.0f;
         }
       }},
      {"zero input", [](Random&, Matrix*, Matrix* x) { std::fill(x->values.begin(), x->values.end(), 0.0f); }},
      {"tiny",
       [](Random&, Matrix* head, Matrix* x) {
         for (float& v : x->values) v *= 1e-30f;
         for (float& v : head->values) v *= 1e-9f;
       }},
      {"huge",
       [](Random&, Matrix* head, Matrix* x) {
         for (float& v : x->values) v *= 1e20f;
         for (float& v : head->values) v *= 1e17f;
       }},
      {"not finite in the input",
       [](Random& random, Matrix*, Matrix* x) {
         x->at(0, 0) = kInfinity;
         Any(random, x) = std::numeric_limits<float>::quiet_NaN();
       }},
      {"not finite in the head",
       [](Random& random, Matrix* head, Matrix*) {
         Any(random, head) = kInfinity;
         Any(random, head) = -kInfinity;
         Any(random, head) = std::numeric_limits<float>::quiet_NaN();
       }},
  };
}

class HeadScanTest : public TargetTest {};

INSTANTIATE_TEST_SUITE_P(Targets, HeadScanTest, testing::ValuesIn(RunnableTargets()), NameOfTarget);

// Logits of the whole head and scores of the scan for one input.
struct Scanned {
  std::unique_ptr<HeadScan> scan;
  HeadScan::Bound bound;
  std::vector<float> logits;
  std::vector<float> scores;  // of the second code row behind those of the first

  Scanned(const Head& head, const float* x) {
    base::ThreadPool pool(1);
    scan = HeadScan::Make(head.weight(), pool);
    if (scan == nullptr) return;
    WorkerScratch scratch;
    const auto rows = static_cast<size_t>(head.rows);
    logits.resize(rows);
    LinearJob exact{.format = head.weight().format,
                    .weight = head.bytes.data(),
                    .cols = head.cols,
                    .n_end = head.rows,
                    .x = x,
                    .x_stride = head.cols,
                    .rows = 1,
                    .out = logits.data(),
                    .out_stride = head.rows};
    RunLinear(exact, scratch);
    std::vector<float> rest(static_cast<size_t>(head.cols));
    Scratch codes;
    auto* const code_rows = codes.Get<std::byte>(HeadScan::kCodesPerRow * QuantizedRowBytes(head.cols));
    bound = scan->QuantizeInput(x, rest.data(), code_rows);
    scores.resize(HeadScan::kCodesPerRow * rows);
    LinearJob job{.n_end = head.rows,
                  .quantized = code_rows,
                  .rows = HeadScan::kCodesPerRow,
                  .out = scores.data(),
                  .out_stride = head.rows};
    scan->SetWeight(job);
    RunLinear(job, scratch);
  }
};

TEST_P(HeadScanTest, NoLogitLeavesItsBound) {
  Random random(71);
  for (const Case& c : Cases()) {
    for (const int64_t cols : {int64_t{8}, int64_t{96}, int64_t{516}}) {
      SCOPED_TRACE(std::string(c.name) + ", " + std::to_string(cols) + " columns");
      Matrix values = random.Normals(301, cols);
      Matrix x = random.Normals(1, cols);
      c.change(random, &values, &x);
      const Head head(values, DType::kBF16);
      Scanned s(head, x.values.data());
      ASSERT_NE(s.scan, nullptr);
      std::vector<float> single = s.scores;
      s.scan->Score(s.bound, 0, head.rows, s.scores.data(), s.scores.data() + head.rows);
      for (int64_t n = 0; n < head.rows; ++n) {
        const float logit = s.logits[static_cast<size_t>(n)];
        if (std::isnan(logit)) continue;
        const float reached = s.scan->Score(s.bound, n, n + 1, single.data(), single.data() + head.rows);
        EXPECT_LE(reached, logit) << n;
        std::vector<int32_t> listed;
        s.scan->Candidates(s.bound, s.scores.data(), logit, static_cast<size_t>(head.rows), &listed);
        EXPECT_THAT(listed, testing::Contains(static_cast<int32_t>(n)));
      }
    }
  }
}

TEST_P(HeadScanTest, LeavesAFewRowsOfAPlainHead) {
  Random random(72);
  const Head head(random.Normals(4096, 768), DType::kBF16);
  for (int i = 0; i < 4; ++i) {
    const Matrix x = random.Normals(1, 768);
    Scanned s(head, x.values.data());
    const float least = s.scan->Score(s.bound, 0, head.rows, s.scores.data(), s.scores.data() + head.rows);
    std::vector<int32_t> listed;
    s.scan->Candidates(s.bound, s.scores.data(), least, 4096, &listed);
    EXPECT_GE(listed.size(), 1u);
    EXPECT_LE(listed.size(), 41u);  // 1 %
    std::vector<int32_t> few;
    s.scan->Candidates(s.bound, s.scores.data(), -kInfinity, 10, &few);
    EXPECT_GT(few.size(), 10u);  // says that there are more than asked for, without listing all
    EXPECT_LE(few.size(), 10u + 256u);
  }
}

TEST(HeadScanMake, RefusesWhatItCannotScan) {
  base::ThreadPool pool(1);
  const Head head(Matrix(8, 32), DType::kF16);
  EXPECT_NE(HeadScan::Make(head.weight(), pool), nullptr);
  quant::HostLinear quantized = head.weight();
  quantized.format = {.kind = quant::FormatKind::kInt8};
  EXPECT_EQ(HeadScan::Make(quantized, pool), nullptr);
  quant::HostLinear wide = head.weight();
  wide.rows = 0;
  wide.cols = 65537;
  EXPECT_EQ(HeadScan::Make(wide, pool), nullptr);
}

TEST_P(HeadScanTest, TokensAreThoseOfTheWholeHead) {
  std::string why;
  const auto rig = Rig::Open("cpu", test::SmallState(20, 20), &why, {.threads = 2, .head_scan = true});
  ASSERT_NE(rig, nullptr) << why;
  Random random(73);
  const std::pair<int64_t, int64_t> shapes[] = {{1, 8}, {15, 24}, {17, 64}, {403, 96}, {1499, 132}};
  for (const auto& [rows, cols] : shapes) {
    for (const Case& c : Cases()) {
      for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
        if (dtype != DType::kBF16 && rows > 1000) continue;
        for (const int inputs : {1, 4, 9}) {
          SCOPED_TRACE(std::string(c.name) + ", " + std::to_string(rows) + " x " + std::to_string(cols) + ", type " +
                       std::to_string(static_cast<int>(dtype)) + ", inputs " + std::to_string(inputs));
          Matrix values = random.Normals(rows, cols);
          Matrix x = random.Normals(inputs, cols);
          c.change(random, &values, &x);
          const Head head(values, dtype);
          auto weight = rig->device().Prepare(
              {.name = "head", .role = LinearRole::kHead, .blocks = {{.weight = head.weight(), .bias = {}}}});
          ASSERT_TRUE(weight.ok()) << weight.status().message();
          BatchPlan plan = test::MakePlan({{.slot = 0, .rows = inputs, .first_index = 0}}, 128);
          for (int i = 0; i < inputs; ++i) plan.head_rows.push_back(i);
          Matrix ones(1, cols);
          std::fill(ones.values.begin(), ones.values.end(), 1.0f);
          const View in = rig->Put(x);
          const View gain = rig->Put(ones);
          const View normed = rig->Poisoned(inputs, cols);
          const View logits = rig->Poisoned(inputs, rows);
          const View whole = rig->PoisonedInts(inputs);
          const View scanned = rig->PoisonedInts(inputs);
          rig->Run(nullptr, &plan, [&](Stream& s) {
            s.Head(
                {.x = in, .gain = gain, .weight = weight->get(), .normed = normed, .logits = logits, .token = whole});
            s.Head({.x = in, .gain = gain, .weight = weight->get(), .normed = normed, .logits = {}, .token = scanned});
          });
          EXPECT_EQ(rig->GetInts(scanned), rig->GetInts(whole));
        }
      }
    }
  }
}

TEST(HeadScanOption, OtherBackendsRefuseIt) {
  std::string why;
  EXPECT_EQ(Rig::Open("ref", test::SmallState(20, 20), &why, {.head_scan = true}), nullptr);
  EXPECT_THAT(why, testing::HasSubstr("has no head scan"));
}

}  // namespace
}  // namespace voxrt::backend::cpu
