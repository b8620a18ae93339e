// Tests that run once for each compiled instruction set that this machine has.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hwy/targets.h"

namespace voxrt::backend::cpu {

class TargetTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

inline std::vector<int64_t> RunnableTargets() {
  std::vector<int64_t> targets;
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    if (target == HWY_SSE4 || target == HWY_AVX2 || target == HWY_AVX3 || target == HWY_AVX3_DL || target == HWY_NEON) {
      targets.push_back(target);
    }
  }
  return targets;
}

inline std::string NameOfTarget(const testing::TestParamInfo<int64_t>& param) { return hwy::TargetName(param.param); }

}  // namespace voxrt::backend::cpu
