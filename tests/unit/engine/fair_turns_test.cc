// SPDX-License-Identifier: Apache-2.0
#include "server/engine/fair_turns.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "server/engine/cpu_ceiling.h"
#include "tests/support/fake_clock.h"

namespace loaderd::engine {
namespace {

constexpr double kMillisecond = 1e6;

class FairTurnsTest : public ::testing::Test {
 protected:
  // One turn from asking to its decoding, where a sample of `member` costs cost[member] ns.
  uint64_t Serve() {
    const Turn turn = turns.Next().value();
    turns.EndAsking(turn, turn.samples);
    turns.EndRead(turn);
    const double spent = cost[turn.member] * static_cast<double>(turn.samples);
    turns.Settle(turn, spent, turn.samples);
    used[turn.member] += spent;
    return turn.member;
  }
  void Join(uint64_t member, uint32_t uid, double weight, double sample_cost) {
    cost[member] = sample_cost;
    turns.Join(member, uid, weight);
    turns.Wake(member);
  }
  FairTurns turns{
      {.samples = 8, .reads_each = 2, .reads_each_user = 3, .stuck_each = 1, .stuck_each_user = 2}};
  std::map<uint64_t, double> cost;
  std::map<uint64_t, double> used;
};

TEST_F(FairTurnsTest, NobodyIsAskedBeforeItWakes) {
  turns.Join(1, 1000, 1);
  EXPECT_TRUE(turns.empty());
  EXPECT_FALSE(turns.Next().has_value());
}

TEST_F(FairTurnsTest, HeavySamplesGetNoMoreTimeThanLightOnes) {
  Join(1, 1000, 1, 50 * kMillisecond);
  Join(2, 1001, 1, 1 * kMillisecond);
  for (int i = 0; i < 5000; ++i) Serve();
  EXPECT_NEAR(used[1] / used[2], 1.0, 0.05);
}

TEST_F(FairTurnsTest, UsersShareByWeightAndTheirSessionsEvenly) {
  Join(1, 1000, 1, 2 * kMillisecond);
  for (const uint64_t member : {2, 3, 4}) Join(member, 1001, 3, 3 * kMillisecond);
  for (int i = 0; i < 5000; ++i) Serve();
  const double other = used[2] + used[3] + used[4];
  EXPECT_NEAR(other / used[1], 3.0, 0.05);
  EXPECT_NEAR(used[2] / used[4], 1.0, 0.05);
}

TEST_F(FairTurnsTest, OneThatComesLateGetsItsShareFromThenOnAndNoMore) {
  Join(1, 1000, 1, kMillisecond);
  for (int i = 0; i < 1000; ++i) Serve();
  const double before = used[1];
  Join(2, 1001, 1, kMillisecond);
  for (int i = 0; i < 1000; ++i) Serve();
  EXPECT_NEAR(used[2] / (used[1] - before), 1.0, 0.05);
}

TEST_F(FairTurnsTest, ATurnInVainCostsNothing) {
  Join(1, 1000, 1, kMillisecond);
  const Turn turn = turns.Next().value();
  turns.EndAsking(turn, 0);
  EXPECT_TRUE(turns.empty());
  turns.Wake(1);
  EXPECT_EQ(turns.Next()->tag, turn.tag);
}

TEST_F(FairTurnsTest, AWakeWhileBeingAskedIsNotLost) {
  Join(1, 1000, 1, kMillisecond);
  const Turn turn = turns.Next().value();
  turns.Wake(1);
  EXPECT_TRUE(turns.empty());
  turns.EndAsking(turn, 0);
  EXPECT_FALSE(turns.empty());
}

TEST_F(FairTurnsTest, AMemberAndAUserHaveTheirPartOfTheReaders) {
  Join(1, 1000, 1, kMillisecond);
  Join(2, 1000, 1, kMillisecond);
  std::vector<Turn> reads;
  while (!turns.empty()) {
    reads.push_back(turns.Next().value());
    turns.EndAsking(reads.back(), 1);
  }
  EXPECT_EQ(reads.size(), 3u);  // the user's, though each of its members might have two
  Join(3, 1001, 1, kMillisecond);
  EXPECT_EQ(turns.Next()->member, 3u);
  turns.EndRead(reads[0]);
  EXPECT_FALSE(turns.empty());
}

TEST_F(FairTurnsTest, OneWithTooManyStuckReadsIsStrandedUntilTheyEnd) {
  Join(1, 1000, 1, kMillisecond);
  Join(2, 1000, 1, kMillisecond);
  Turn turn = turns.Next().value();
  ASSERT_EQ(turn.member, 1u);
  turns.EndAsking(turn, 1);
  EXPECT_TRUE(turns.WriteOff(turn));
  turns.EndRead(turn);
  EXPECT_EQ(turns.Next()->member, 2u);  // the user's other session reads on
  EXPECT_TRUE(turns.empty());
  const std::vector<Turn> stranded = turns.Stranded();
  ASSERT_EQ(stranded.size(), 1u);
  EXPECT_EQ(stranded[0].member, 1u);
  turns.Wake(1);
  turns.EndAsking(stranded[0], 0);
  EXPECT_TRUE(turns.empty());
  turns.EndStuck(turn);
  EXPECT_EQ(turns.Next()->member, 1u);
  EXPECT_TRUE(turns.Stranded().empty());
}

TEST_F(FairTurnsTest, AStarvedMemberWaitsUntilItIsFed) {
  Join(1, 1000, 1, kMillisecond);
  turns.Starve(turns.Next().value());
  EXPECT_TRUE(turns.empty());
  EXPECT_TRUE(turns.any_starved());
  turns.FeedStarved();
  EXPECT_EQ(turns.Next()->member, 1u);
}

TEST_F(FairTurnsTest, OneThatLeftIsForgottenInEveryState) {
  Join(1, 1000, 1, kMillisecond);
  const Turn read = turns.Next().value();
  turns.EndAsking(read, 1);
  turns.WriteOff(read);
  const Turn other = read;
  turns.Leave(1);
  EXPECT_TRUE(turns.empty());
  EXPECT_TRUE(turns.Stranded().empty());
  turns.EndRead(read);
  turns.EndStuck(other);
  turns.Settle(read, kMillisecond, 1);
  turns.Starve(read);
  EXPECT_FALSE(turns.any_starved());
  EXPECT_FALSE(turns.Next().has_value());
}

TEST(CpuCeilingTest, HoldsManyThreadsToSoManyCpus) {
  FakeClock clock;
  clock.Advance(std::chrono::seconds(100));
  CpuCeiling ceiling(1.5);
  const Clock::Time begun = clock.Now();
  std::chrono::nanoseconds used{0};
  while (clock.Now() - begun < std::chrono::seconds(10)) {
    clock.Advance(ceiling.Pause(clock.Now()) + std::chrono::microseconds(1));
    ceiling.Charge(std::chrono::milliseconds(7), clock.Now());
    used += std::chrono::milliseconds(7);
  }
  EXPECT_NEAR(std::chrono::duration<double>(used).count(), 15.0, 0.1);
}

TEST(CpuCeilingTest, NoCeilingNeverPauses) {
  CpuCeiling ceiling(0);
  ceiling.Charge(std::chrono::hours(1), {});
  EXPECT_EQ(ceiling.Pause({}).count(), 0);
}

}  // namespace
}  // namespace loaderd::engine
