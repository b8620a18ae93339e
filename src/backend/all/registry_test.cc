#include "backend/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace voxrt::backend {
namespace {

TEST(Registry, RefIsAlwaysCompiledInAndListedLast) { EXPECT_EQ(CompiledBackends().back().name, "ref"); }

TEST(Registry, OpensABackendByName) {
  auto device = OpenDevice("ref", {});
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ((*device)->info().backend, "ref");
}

TEST(Registry, EveryEntryReportsItsOwnNameOrWhyItCannotOpen) {
  for (const BackendEntry& entry : CompiledBackends()) {
    auto device = entry.open({});
    if (device.ok()) {
      EXPECT_EQ((*device)->info().backend, entry.name);
      EXPECT_FALSE((*device)->info().description.empty());
    } else {
      EXPECT_FALSE(device.status().message().empty());
    }
  }
}

TEST(Registry, AnUnknownNameIsRefusedNamingTheKnownOnes) {
  auto device = OpenDevice("metal", {});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(device.status().message(), testing::HasSubstr("metal"));
  EXPECT_THAT(device.status().message(), testing::HasSubstr("ref"));
}

TEST(Registry, RefHasOneDevice) {
  auto device = OpenDevice("ref", {.ordinal = 1});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace voxrt::backend
