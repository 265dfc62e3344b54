// SPDX-License-Identifier: Apache-2.0
#include "server/engine/turns.h"

#include <gtest/gtest.h>

#include <optional>

namespace loaderd::engine {
namespace {

class TurnsTest : public ::testing::Test {
 protected:
  TurnsTest() {
    for (uint64_t member : {1, 2, 3}) turns.Join(member);
  }
  // A turn in which the member has something to read.
  uint64_t Read() {
    const uint64_t member = turns.Next().value();
    turns.EndAsking(member, true);
    return member;
  }
  Turns turns{2};
};

TEST_F(TurnsTest, NobodyIsAskedBeforeItWakes) { EXPECT_EQ(turns.Next(), std::nullopt); }

TEST_F(TurnsTest, MembersWithWorkTakeTurns) {
  turns.Wake(2);
  turns.Wake(1);
  turns.Wake(2);
  EXPECT_EQ(Read(), 2u);
  EXPECT_EQ(Read(), 1u);
  EXPECT_EQ(Read(), 2u);
  EXPECT_EQ(Read(), 1u);
}

TEST_F(TurnsTest, AMemberAtItsLimitWaitsForAReadToEnd) {
  turns.Wake(1);
  Read();
  Read();
  EXPECT_TRUE(turns.empty());
  turns.Wake(1);
  EXPECT_TRUE(turns.empty());
  turns.EndRead(1);
  EXPECT_EQ(Read(), 1u);
  EXPECT_TRUE(turns.empty());
}

TEST_F(TurnsTest, AMemberWithoutWorkIsNotAskedAgainUntilItWakes) {
  turns.Wake(1);
  turns.EndAsking(turns.Next().value(), false);
  EXPECT_TRUE(turns.empty());
  turns.Wake(1);
  EXPECT_EQ(turns.Next(), 1u);
}

TEST_F(TurnsTest, AWakeWhileBeingAskedIsNotLost) {
  turns.Wake(1);
  ASSERT_EQ(turns.Next(), 1u);
  turns.Wake(1);
  EXPECT_TRUE(turns.empty());
  turns.EndAsking(1, false);
  EXPECT_EQ(turns.Next(), 1u);
  turns.EndAsking(1, false);
  EXPECT_TRUE(turns.empty());
}

TEST_F(TurnsTest, AStarvedMemberWaitsUntilItIsFed) {
  turns.Wake(1);
  turns.Wake(2);
  turns.Starve(turns.Next().value());
  EXPECT_EQ(Read(), 2u);
  EXPECT_TRUE(turns.any_starved());
  turns.FeedStarved();
  EXPECT_FALSE(turns.any_starved());
  EXPECT_EQ(Read(), 2u);
  EXPECT_EQ(Read(), 1u);
}

TEST_F(TurnsTest, OneThatLeftIsForgottenInEveryState) {
  turns.Wake(1);
  turns.Leave(1);
  EXPECT_TRUE(turns.empty());
  turns.Wake(2);
  ASSERT_EQ(turns.Next(), 2u);
  turns.Leave(2);
  turns.EndAsking(2, true);
  turns.EndRead(2);
  turns.Starve(2);
  turns.Wake(3);
  ASSERT_EQ(turns.Next(), 3u);
  turns.Starve(3);
  turns.Leave(3);
  turns.FeedStarved();
  EXPECT_TRUE(turns.empty());
  EXPECT_FALSE(turns.any_starved());
}

}  // namespace
}  // namespace loaderd::engine
