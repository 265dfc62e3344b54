// SPDX-License-Identifier: Apache-2.0
#include "server/base/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace loaderd {
namespace {

using testing::HasSubstr;

constexpr uint32_t kAnn = 1000, kBob = 1001;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

Budget::Options Bytes(uint64_t total, uint64_t per_uid = 0) {
  return {.name = "slot bytes",
          .total = total,
          .per_uid = per_uid,
          .unit = "bytes",
          .config_field = "limits.slot_bytes"};
}

TEST(BudgetTest, GrantsGoBackWhenTheyEnd) {
  Budget budget(Bytes(100));
  {
    ASSERT_OK_AND_ASSIGN(const Grant grant, budget.Take(kAnn, 60));
    EXPECT_TRUE(grant);
    EXPECT_EQ(grant.amount(), 60u);
    EXPECT_EQ(budget.used(), 60u);
    EXPECT_EQ(budget.used_by(kAnn), 60u);
    EXPECT_EQ(budget.used_by(kBob), 0u);
  }
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_EQ(budget.used_by(kAnn), 0u);
}

TEST(BudgetTest, RefusalSaysAskedLeftTotalAndWhatRaisesIt) {
  Budget budget(Bytes(100));
  ASSERT_OK_AND_ASSIGN(const Grant grant, budget.Take(kAnn, 60));
  EXPECT_THAT(budget.Take(kBob, 41),
              StatusIs(kExhausted,
                       "slot bytes: asked for 41 bytes, 40 bytes left of 100 bytes; "
                       "the daemon's setting limits.slot_bytes raises it"));
  EXPECT_EQ(budget.used(), 60u);
  EXPECT_THAT(budget.Take(kBob, 40), IsOk());
}

TEST(BudgetTest, AUidHasNoMoreThanItsShare) {
  Budget budget(Bytes(100, 30));
  ASSERT_OK_AND_ASSIGN(const Grant ann, budget.Take(kAnn, 20));
  EXPECT_THAT(budget.Take(kAnn, 11),
              StatusIs(kExhausted,
                       HasSubstr("asked for 11 bytes, 10 bytes left of 100 bytes (30 a user)")));
  EXPECT_THAT(budget.Take(kBob, 30), IsOk());
  EXPECT_THAT(budget.Take(kBob, 31), StatusIs(kExhausted));
}

TEST(BudgetTest, AShareDoesNotHelpWhereTheWholeIsUsedUp) {
  Budget budget(Bytes(50, 30));
  ASSERT_OK_AND_ASSIGN(const Grant ann, budget.Take(kAnn, 30));
  EXPECT_THAT(budget.Take(kBob, 21), StatusIs(kExhausted, HasSubstr("20 bytes left")));
}

TEST(BudgetTest, WithoutUnitOrShareTheTextNamesNeither) {
  Budget budget({.name = "sessions",
                 .total = 1,
                 .per_uid = 0,
                 .unit = "",
                 .config_field = "limits.max_sessions"});
  EXPECT_THAT(budget.Take(kAnn, 2),
              StatusIs(kExhausted,
                       "sessions: asked for 2, 1 left of 1; the daemon's setting "
                       "limits.max_sessions raises it"));
}

TEST(BudgetTest, HugeAmountsDoNotWrapAround) {
  Budget budget(Bytes(100));
  ASSERT_OK_AND_ASSIGN(const Grant grant, budget.Take(kAnn, 60));
  EXPECT_THAT(budget.Take(kAnn, UINT64_MAX), StatusIs(kExhausted));
  EXPECT_THAT(budget.Take(kAnn, UINT64_MAX - 59), StatusIs(kExhausted));
}

TEST(BudgetTest, TakeUpToDegradesInWholeStepsAndRefusesBelowTheLeast) {
  Budget budget(Bytes(100));
  ASSERT_OK_AND_ASSIGN(Grant all, budget.TakeUpTo(kAnn, 50, 10, 10));
  EXPECT_EQ(all.amount(), 50u);
  ASSERT_OK_AND_ASSIGN(Grant part, budget.TakeUpTo(kBob, 80, 15, 15));
  EXPECT_EQ(part.amount(), 45u);
  EXPECT_THAT(budget.TakeUpTo(kBob, 80, 15, 15),
              StatusIs(kExhausted, HasSubstr("asked for 15 bytes, 5 bytes left")));
  all.Reset();
  ASSERT_OK_AND_ASSIGN(const Grant least, budget.TakeUpTo(kBob, 55, 55, 10));
  EXPECT_EQ(least.amount(), 55u);
}

TEST(BudgetTest, TakeUpToKeepsToTheShare) {
  Budget budget(Bytes(100, 25));
  ASSERT_OK_AND_ASSIGN(const Grant grant, budget.TakeUpTo(kAnn, 100, 10, 10));
  EXPECT_EQ(grant.amount(), 20u);
}

TEST(GrantTest, MovesWithoutGivingBackTwice) {
  Budget budget(Bytes(100));
  ASSERT_OK_AND_ASSIGN(Grant first, budget.Take(kAnn, 10));
  Grant second = std::move(first);
  EXPECT_EQ(budget.used(), 10u);
  EXPECT_EQ(second.amount(), 10u);
  ASSERT_OK_AND_ASSIGN(Grant other, budget.Take(kBob, 5));
  other = std::move(second);
  EXPECT_EQ(budget.used(), 10u);
  EXPECT_EQ(budget.used_by(kBob), 0u);
  other.Reset();
  other.Reset();
  EXPECT_FALSE(other);
  EXPECT_EQ(other.amount(), 0u);
  EXPECT_EQ(budget.used(), 0u);
}

TEST(BudgetTest, ManyThreadsNeverHoldMoreThanTheTotal) {
  Budget budget(Bytes(10, 6));
  {
    std::vector<std::jthread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 2000; ++i) {
          const auto grant = budget.TakeUpTo(t % 2, 4, 1, 1);
          EXPECT_LE(budget.used(), 10u);
          EXPECT_LE(budget.used_by(t % 2), 6u);
        }
      });
    }
  }
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace loaderd
