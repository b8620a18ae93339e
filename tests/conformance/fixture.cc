// Implementation of the conformance fixtures.
#include "fixture.h"

#include <bit>
#include <cmath>

#include "backend/registry.h"

namespace voxrt::test {

std::vector<std::string> AllBackends() {
  std::vector<std::string> names;
  for (const auto& entry : backend::CompiledBackends()) names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> BackendsBesidesRef() {
  std::vector<std::string> names = AllBackends();
  std::erase(names, "ref");
  return names;
}

void ExpectSameBits(const Matrix& actual, const Matrix& expected, const std::string& what) {
  ASSERT_EQ(actual.rows, expected.rows) << what;
  ASSERT_EQ(actual.cols, expected.cols) << what;
  int64_t different = 0;
  for (int64_t r = 0; r < actual.rows; ++r) {
    for (int64_t c = 0; c < actual.cols; ++c) {
      const float a = actual.at(r, c);
      const float e = expected.at(r, c);
      const bool same = std::isfinite(a) && std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(e);
      if (!same && different++ == 0) {
        ADD_FAILURE() << what << ": first difference at row " << r << ", column " << c << ": " << a << ", expected "
                      << e;
      }
    }
  }
  if (different > 1)
    ADD_FAILURE() << what << ": " << different << " of " << actual.rows * actual.cols << " values differ";
}

void ExpectWithin(const Matrix& actual, const Matrix& expected, const Matrix& tolerance, const std::string& what) {
  ASSERT_EQ(actual.rows, expected.rows) << what;
  ASSERT_EQ(actual.cols, expected.cols) << what;
  ASSERT_EQ(tolerance.values.size(), expected.values.size()) << what;
  int64_t wrong = 0;
  double worst = 0.0;
  size_t worst_at = 0;
  for (size_t i = 0; i < actual.values.size(); ++i) {
    const double error = std::fabs(static_cast<double>(actual.values[i]) - static_cast<double>(expected.values[i]));
    const bool good = error <= static_cast<double>(tolerance.values[i]);  // false for NaN
    const double ratio = good                   ? error / std::max(static_cast<double>(tolerance.values[i]), 1e-300)
                         : std::isfinite(error) ? 1.0 + error
                                                : INFINITY;
    if (!good) ++wrong;
    if (ratio > worst) {
      worst = ratio;
      worst_at = i;
    }
  }
  const auto cols = static_cast<size_t>(actual.cols);
  EXPECT_EQ(wrong, 0) << what << ": " << wrong << " of " << actual.values.size() << " values are wrong, worst at row "
                      << worst_at / cols << ", column " << worst_at % cols << ": " << actual.values[worst_at]
                      << ", expected " << expected.values[worst_at] << " within " << tolerance.values[worst_at];
}

void RigPair::Open(const std::string& backend, const backend::SessionStateSpec& state) {
  std::string why;
  dev_ = Rig::Open(backend, state, &why);
  if (dev_ == nullptr) GTEST_SKIP() << "backend " << backend << " cannot be opened here: " << why;
  ref_ = Rig::Open("ref", state, &why);
}

void FormatTest::SetUp() {
  Open(std::get<0>(GetParam()), SmallState(24, 40));
  if (opened() && !dev().device().Supports(format())) {
    GTEST_SKIP() << std::get<0>(GetParam()) << " does not support " << FormatName(format());
  }
}

std::unique_ptr<backend::PreparedLinear> FormatTest::Prepare(Rig& rig, const std::vector<const TestWeight*>& weights,
                                                             backend::LinearRole role) {
  backend::LinearSpec spec{.name = "test weight", .role = role, .blocks = {}};
  for (const TestWeight* weight : weights) spec.blocks.push_back(weight->block());
  auto made = rig.device().Prepare(spec);
  if (made.ok()) return std::move(made).value();
  const quant::HostLinear& w = weights[0]->weight();
  EXPECT_TRUE(w.rows % 8 != 0 || w.cols % 128 != 0)
      << "[" << w.rows << ", " << w.cols << "]: " << made.status().message();
  return nullptr;
}

std::string BackendName(const testing::TestParamInfo<std::string>& info) { return info.param; }

std::string BackendAndFormatName(const testing::TestParamInfo<std::tuple<std::string, quant::Format>>& info) {
  return std::get<0>(info.param) + "_" + TestName(std::get<1>(info.param));
}

}  // namespace voxrt::test
