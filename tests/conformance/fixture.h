// What the conformance tests share: which backends there are, a pair of rigs (the backend under test and ref), and
// comparison with a tolerance that is given for each element.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/rig.h"
#include "support/weights.h"

namespace voxrt::test {

// Names of the compiled-in backends; without ref where a test compares with ref.
std::vector<std::string> AllBackends();
std::vector<std::string> BackendsBesidesRef();

// `actual` and `expected` have the same bits; a NaN or an infinity is a failure of its own: no test here asks for one.
void ExpectSameBits(const Matrix& actual, const Matrix& expected, const std::string& what);
// |actual - expected| <= tolerance, element by element; reports the worst one.
void ExpectWithin(const Matrix& actual, const Matrix& expected, const Matrix& tolerance, const std::string& what);

// The backend under test and ref, each with session state of its own.
class RigPair : public testing::Test {
 protected:
  // Skips, with the device's reason, where the backend cannot be opened.
  void Open(const std::string& backend, const backend::SessionStateSpec& state);

  Rig& dev() { return *dev_; }
  Rig& ref() { return *ref_; }
  bool opened() const { return dev_ != nullptr; }
  quant::DType activation() { return dev().device().info().activation_dtype; }
  // Runs on both rigs: first the backend's result, then ref's.
  std::pair<Matrix, Matrix> Both(const std::function<Matrix(Rig&)>& run) { return {run(dev()), run(ref())}; }

 private:
  std::unique_ptr<Rig> dev_;
  std::unique_ptr<Rig> ref_;
};

// Parameter: name of the backend.
class BackendTest : public RigPair, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override { Open(GetParam(), SmallState(24, 40)); }
};

// Parameter: backend and weight format. Skips formats that the device does not support.
class FormatTest : public RigPair, public testing::WithParamInterface<std::tuple<std::string, quant::Format>> {
 protected:
  void SetUp() override;
  const quant::Format& format() const { return std::get<1>(GetParam()); }

  // Null where the device refuses a shape that is not aligned to 8 rows and 128 columns, which a backend may.
  std::unique_ptr<backend::PreparedLinear> Prepare(Rig& rig, const std::vector<const TestWeight*>& weights,
                                                   backend::LinearRole role = backend::LinearRole::kPlain);
};

std::string BackendName(const testing::TestParamInfo<std::string>& info);
std::string BackendAndFormatName(const testing::TestParamInfo<std::tuple<std::string, quant::Format>>& info);

}  // namespace voxrt::test
