#include "server/admission.h"

#include <gtest/gtest.h>

#include <vector>

namespace voxrt::server {
namespace {

class AdmissionByLoad : public ::testing::Test {
 protected:
  void Enter(int count) {
    for (int i = 0; i < count; ++i) {
      auto lease = admission_->TryEnter();
      ASSERT_TRUE(lease.has_value()) << i;
      leases_.push_back(*std::move(lease));
    }
  }
  void Observe(int looks, double lag_s) {
    for (int i = 0; i < looks; ++i) admission_->Observe(lag_s);
  }

  std::shared_ptr<Admission> admission_ = std::make_shared<Admission>(32, true);
  std::vector<Admission::Lease> leases_;
};

TEST(Admission, PlacesComeBackWithTheirLeases) {
  const auto admission = std::make_shared<Admission>(2);
  std::optional<Admission::Lease> one = admission->TryEnter(), two = admission->TryEnter();
  EXPECT_FALSE(admission->TryEnter().has_value());
  EXPECT_TRUE(admission->full());
  one.reset();
  EXPECT_TRUE(admission->TryEnter().has_value());
  EXPECT_EQ(admission->taken(), 1);
}

TEST(Admission, AGivenNumberIsNotLoweredByLoad) {
  const auto admission = std::make_shared<Admission>(4);
  const std::optional<Admission::Lease> one = admission->TryEnter();
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(admission->Observe(9.0));
  EXPECT_EQ(admission->limit(), 4);
  EXPECT_TRUE(admission->TryEnter().has_value());
}

TEST_F(AdmissionByLoad, AMomentOfLagKeepsNobodyOut) {
  Enter(5);
  Observe(1, 2.0);  // counts for two looks
  Observe(3, 0.0);
  EXPECT_FALSE(admission_->limited());
  Enter(1);
}

TEST_F(AdmissionByLoad, BehindItTakesNobodyNew) {
  Enter(5);
  EXPECT_FALSE(admission_->Observe(0.6));
  EXPECT_FALSE(admission_->Observe(0.0)) << "a look without reports";
  EXPECT_TRUE(admission_->Observe(0.6));
  EXPECT_EQ(admission_->limit(), 5);
  EXPECT_FALSE(admission_->TryEnter().has_value());
  leases_.pop_back();
  EXPECT_TRUE(admission_->TryEnter().has_value()) << "who leaves may be replaced until the next look";
  leases_.pop_back();
  Observe(1, 0.6);
  EXPECT_EQ(admission_->limit(), 3) << "still behind: who left is not replaced";
}

TEST_F(AdmissionByLoad, AfterwardsTheyComeBackAFewASecond) {
  Enter(6);
  Observe(3, 1.0);
  Observe(2, 0.1);  // the first still sees the look before
  EXPECT_EQ(admission_->limit(), 8);
  Enter(2);
  EXPECT_FALSE(admission_->TryEnter().has_value());
  Observe(1, 0.3);
  EXPECT_EQ(admission_->limit(), 8) << "neither behind nor well";
  Observe(30, 0.0);
  EXPECT_EQ(admission_->limit(), 32);
  EXPECT_FALSE(admission_->limited());
}

TEST_F(AdmissionByLoad, ItNeverClosesAltogether) {
  Observe(5, 3.0);
  EXPECT_EQ(admission_->limit(), 1);
  Enter(1);
}

}  // namespace
}  // namespace voxrt::server
