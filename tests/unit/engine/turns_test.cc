// SPDX-License-Identifier: Apache-2.0
#include "server/engine/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace loaderd::engine {
namespace {

constexpr double kMillisecond = 1e6;

class TurnsTest : public ::testing::Test {
 protected:
  // One turn from asking to its decoding, where a sample of `member` costs cost[member] ns.
  uint64_t Serve() {
    Turn turn = turns.Next().value();
    const auto bound = at_most.find(turn.member);
    const size_t taken =
        bound == at_most.end() ? turn.samples : std::min(turn.samples, bound->second);
    turns.EndAsking(turn, taken);
    turns.EndRead(turn);
    const double spent = cost[turn.member] * static_cast<double>(taken);
    turns.Settle(turn, spent, taken);
    used[turn.member] += spent;
    return turn.member;
  }
  void Join(uint64_t member, uint32_t uid, double sample_cost) {
    cost[member] = sample_cost;
    turns.Join(member, uid);
    turns.Wake(member);
  }
  Turns turns{{.samples = 8, .reads_each = 2}};
  std::map<uint64_t, double> cost;
  std::map<uint64_t, size_t> at_most;  // samples that a member has for a turn
  std::map<uint64_t, double> used;
};

TEST_F(TurnsTest, NobodyIsAskedBeforeItWakes) {
  turns.Join(1, 1000);
  EXPECT_TRUE(turns.empty());
  EXPECT_FALSE(turns.Next().has_value());
}

TEST_F(TurnsTest, HeavySamplesGetNoMoreTimeThanLightOnes) {
  Join(1, 1000, 50 * kMillisecond);
  Join(2, 1001, 1 * kMillisecond);
  for (int i = 0; i < 5000; ++i) Serve();
  EXPECT_NEAR(used[1] / used[2], 1.0, 0.05);
}

TEST_F(TurnsTest, UsersShareEvenlyAndSoDoTheSessionsOfEach) {
  Join(1, 1000, 2 * kMillisecond);
  for (const uint64_t member : {2, 3, 4}) Join(member, 1001, 3 * kMillisecond);
  for (int i = 0; i < 5000; ++i) Serve();
  EXPECT_NEAR((used[2] + used[3] + used[4]) / used[1], 1.0, 0.02);
  EXPECT_NEAR(used[2] / used[4], 1.0, 0.05);
}

// Else one whose batches are small would get what it took for nothing, or pay for what it did not.
TEST_F(TurnsTest, ATurnThatTookLessIsChargedForWhatItTook) {
  Join(1, 1000, kMillisecond);
  Join(2, 1001, kMillisecond);
  at_most[2] = 1;
  for (int i = 0; i < 5000; ++i) Serve();
  EXPECT_NEAR(used[2] / used[1], 1.0, 0.02);
}

// Work that its storage or its consumer kept back is not caught up with at the others' expense.
TEST_F(TurnsTest, OneThatWasHeldBackCatchesUpNoMoreThanItsCredit) {
  Join(1, 1000, kMillisecond);
  Join(2, 1001, kMillisecond);
  std::vector<Turn> reads;  // 2's reads do not end
  for (int i = 0; i < 2000; ++i) {
    Turn turn = turns.Next().value();
    turns.EndAsking(turn, turn.samples);
    if (turn.member == 2) {
      reads.push_back(turn);
      continue;
    }
    turns.EndRead(turn);
    turns.Settle(turn, kMillisecond * static_cast<double>(turn.samples), turn.samples);
  }
  for (const Turn& read : reads) {
    turns.EndRead(read);
    turns.Settle(read, kMillisecond * static_cast<double>(read.samples), read.samples);
  }
  for (int i = 0; i < 200; ++i) Serve();
  EXPECT_LE(used[2] - used[1], Turns::kCredit + 2 * Turns::kLongestTurn);
  EXPECT_GE(used[2], used[1]);
}

TEST_F(TurnsTest, ATurnIsShortWhereSamplesAreHeavy) {
  Join(1, 1000, 15 * kMillisecond);
  Serve();
  EXPECT_EQ(turns.Next()->samples, 2u);  // 30 ms of 40
}

TEST_F(TurnsTest, OneThatComesLateGetsItsShareFromThenOnAndNoMore) {
  Join(1, 1000, kMillisecond);
  for (int i = 0; i < 1000; ++i) Serve();
  const double before = used[1];
  Join(2, 1001, kMillisecond);
  for (int i = 0; i < 1000; ++i) Serve();
  EXPECT_NEAR(used[2] / (used[1] - before), 1.0, 0.05);
}

TEST_F(TurnsTest, ATurnInVainCostsNothing) {
  Join(1, 1000, kMillisecond);
  Turn turn = turns.Next().value();
  turns.EndAsking(turn, 0);
  EXPECT_TRUE(turns.empty());
  turns.Wake(1);
  EXPECT_EQ(turns.Next()->tag, turn.tag);
}

TEST_F(TurnsTest, AWakeWhileBeingAskedIsNotLost) {
  Join(1, 1000, kMillisecond);
  Turn turn = turns.Next().value();
  turns.Wake(1);
  EXPECT_TRUE(turns.empty());
  turns.EndAsking(turn, 0);
  EXPECT_FALSE(turns.empty());
}

TEST_F(TurnsTest, AMemberAtItsLimitWaitsForAReadToEnd) {
  Join(1, 1000, kMillisecond);
  Turn first = turns.Next().value();
  turns.EndAsking(first, 1);
  Turn second = turns.Next().value();
  turns.EndAsking(second, 1);
  EXPECT_TRUE(turns.empty());
  turns.Wake(1);
  EXPECT_TRUE(turns.empty());
  turns.EndRead(first);
  EXPECT_EQ(turns.Next()->member, 1u);
  EXPECT_TRUE(turns.empty());
}

TEST_F(TurnsTest, MembersWithWorkTakeTurns) {
  Join(2, 1000, kMillisecond);
  Join(1, 1000, kMillisecond);
  const uint64_t first = Serve();
  const uint64_t second = Serve();
  EXPECT_NE(first, second);
  EXPECT_EQ(Serve(), first);
  EXPECT_EQ(Serve(), second);
}

TEST_F(TurnsTest, AStarvedMemberWaitsUntilItIsFed) {
  Join(1, 1000, kMillisecond);
  turns.Starve(turns.Next().value());
  EXPECT_TRUE(turns.empty());
  EXPECT_TRUE(turns.any_starved());
  turns.FeedStarved();
  EXPECT_EQ(turns.Next()->member, 1u);
}

TEST_F(TurnsTest, OneThatLeftIsForgottenInEveryState) {
  Join(1, 1000, kMillisecond);
  turns.Leave(1);  // queued
  EXPECT_TRUE(turns.empty());
  Join(2, 1000, kMillisecond);
  Turn turn = turns.Next().value();
  turns.Leave(2);  // asked
  turns.EndAsking(turn, 1);
  turns.EndRead(turn);
  turns.Settle(turn, kMillisecond, 1);
  turns.Starve(turn);
  turns.Wake(2);
  EXPECT_FALSE(turns.any_starved());
  EXPECT_TRUE(turns.empty());
  Join(3, 1000, kMillisecond);
  turns.Starve(turns.Next().value());
  turns.Leave(3);  // starved
  turns.FeedStarved();
  EXPECT_FALSE(turns.any_starved());
  EXPECT_FALSE(turns.Next().has_value());
}

}  // namespace
}  // namespace loaderd::engine
