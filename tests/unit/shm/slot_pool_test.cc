// SPDX-License-Identifier: Apache-2.0
#include "server/shm/slot_pool.h"

#include <gtest/gtest.h>

#include <optional>

namespace loaderd::shm {
namespace {

uint32_t Lent(SlotPool& pool) {
  const uint32_t slot = pool.Acquire().value();
  EXPECT_TRUE(pool.MarkReady(slot));
  EXPECT_TRUE(pool.Lend(slot));
  return slot;
}

TEST(SlotPoolTest, LentSlotIsNotReusedBeforeRelease) {
  SlotPool pool(2);
  const uint32_t lent = Lent(pool);
  const uint32_t other = pool.Acquire().value();
  EXPECT_NE(other, lent);
  EXPECT_EQ(pool.Acquire(), std::nullopt);
  EXPECT_TRUE(pool.Release(lent));
  EXPECT_EQ(pool.Acquire(), lent);
}

TEST(SlotPoolTest, ReleaseOfASlotThatIsNotLentChangesNothing) {
  SlotPool pool(3);
  const uint32_t filling = pool.Acquire().value();
  EXPECT_FALSE(pool.Release(filling));
  EXPECT_TRUE(pool.MarkReady(filling));
  EXPECT_FALSE(pool.Release(filling));
  EXPECT_FALSE(pool.Release(2));
  EXPECT_FALSE(pool.Release(3));
  EXPECT_FALSE(pool.Release(UINT32_MAX));
  EXPECT_EQ(pool.count(SlotState::kFree), 2u);
  EXPECT_EQ(pool.count(SlotState::kReady), 1u);
}

TEST(SlotPoolTest, SecondReleaseIsRefused) {
  SlotPool pool(2);
  const uint32_t lent = Lent(pool);
  EXPECT_TRUE(pool.Release(lent));
  EXPECT_FALSE(pool.Release(lent));
  EXPECT_EQ(pool.count(SlotState::kFree), 2u);
}

TEST(SlotPoolTest, FillingAndReadySlotsCanBeDroppedLentOnesCannot) {
  SlotPool pool(3);
  const uint32_t filling = pool.Acquire().value();
  const uint32_t ready = pool.Acquire().value();
  pool.MarkReady(ready);
  const uint32_t lent = Lent(pool);
  EXPECT_TRUE(pool.Drop(filling));
  EXPECT_TRUE(pool.Drop(ready));
  EXPECT_FALSE(pool.Drop(lent));
  EXPECT_FALSE(pool.Drop(filling));
  EXPECT_EQ(pool.count(SlotState::kFree), 2u);
  EXPECT_EQ(pool.state(lent), SlotState::kLent);
}

TEST(SlotPoolTest, StepsCannotBeSkipped) {
  SlotPool pool(1);
  EXPECT_FALSE(pool.MarkReady(0));
  EXPECT_FALSE(pool.Lend(0));
  const uint32_t slot = pool.Acquire().value();
  EXPECT_FALSE(pool.Lend(slot));
}

TEST(SlotPoolTest, LastUnheldIsTrueWhenAllOthersAreLent) {
  SlotPool pool(3);
  EXPECT_FALSE(pool.LastUnheld());
  const uint32_t first = Lent(pool);
  EXPECT_FALSE(pool.LastUnheld());
  Lent(pool);
  EXPECT_TRUE(pool.LastUnheld());
  Lent(pool);
  EXPECT_TRUE(pool.LastUnheld());
  pool.Release(first);
  EXPECT_TRUE(pool.LastUnheld());
}

TEST(SlotPoolTest, AbsentSlotsAreNotAcquiredBeforeTheyAreAdded) {
  SlotPool pool(3, 1);
  EXPECT_EQ(pool.Acquire(), 0u);
  EXPECT_EQ(pool.Acquire(), std::nullopt);
  EXPECT_EQ(pool.NextAbsent(), 1u);
  EXPECT_TRUE(pool.Add(1));
  EXPECT_FALSE(pool.Add(1));
  EXPECT_EQ(pool.Acquire(), 1u);
  EXPECT_EQ(pool.NextAbsent(), 2u);
  pool.GiveUp();
  EXPECT_EQ(pool.NextAbsent(), std::nullopt);
  EXPECT_FALSE(pool.Add(2));
  EXPECT_EQ(pool.Acquire(), std::nullopt);
  EXPECT_EQ(pool.count(SlotState::kGone), 1u);
}

TEST(SlotPoolTest, WhetherOneIsTheLastUnheldIsOpenWhileOthersAreAbsent) {
  SlotPool pool(3, 1);
  EXPECT_TRUE(pool.Undecided());  // if both fail, slot 0 is all there is
  pool.Add(1);
  EXPECT_FALSE(pool.Undecided());
  EXPECT_FALSE(pool.LastUnheld());
  Lent(pool);
  EXPECT_TRUE(pool.Undecided());
  pool.GiveUp();
  EXPECT_FALSE(pool.Undecided());
  EXPECT_TRUE(pool.LastUnheld());
}

TEST(SlotPoolTest, OneSlotIsAlwaysTheLastUnheld) { EXPECT_TRUE(SlotPool(1).LastUnheld()); }

}  // namespace
}  // namespace loaderd::shm
