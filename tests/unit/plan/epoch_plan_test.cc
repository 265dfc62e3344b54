// SPDX-License-Identifier: Apache-2.0
#include "server/plan/epoch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace loaderd::plan {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Order Sequential(uint32_t rank = 0, uint32_t world = 1, ShardRule shard = ShardRule::kPad) {
  return {.kind = OrderKind::kSequential, .rank = rank, .world_size = world, .shard = shard};
}

Order Shuffled(uint64_t seed, uint32_t rank = 0, uint32_t world = 1,
               ShardRule shard = ShardRule::kPad) {
  return {.kind = OrderKind::kTorchShuffle,
          .seed = seed,
          .rank = rank,
          .world_size = world,
          .shard = shard};
}

std::vector<PlannedSample> All(const EpochPlan& plan) {
  std::vector<PlannedSample> all, batch;
  for (uint64_t k = 0; k < plan.num_batches(); ++k) {
    plan.Batch(k, batch);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

std::vector<uint64_t> Indices(const Order& order, uint64_t n, uint64_t epoch = 0) {
  std::vector<uint64_t> indices;
  for (const PlannedSample& sample : All(EpochPlan(order, n, 3, false, epoch))) {
    indices.push_back(sample.index);
  }
  return indices;
}

std::vector<size_t> BatchSizes(const EpochPlan& plan) {
  std::vector<size_t> sizes;
  std::vector<PlannedSample> batch;
  for (uint64_t k = 0; k < plan.num_batches(); ++k) {
    plan.Batch(k, batch);
    sizes.push_back(batch.size());
  }
  return sizes;
}

// What torch.utils.data.DistributedSampler of torch 2.13 yielded.
TEST(EpochPlanTest, DealsOutAsDistributedSamplerDoes) {
  EXPECT_THAT(Indices(Shuffled(1, 2, 3), 10), ElementsAre(1, 8, 7, 6));
  EXPECT_THAT(Indices(Shuffled(1, 1, 3, ShardRule::kDrop), 10, 4), ElementsAre(4, 3, 2));
  EXPECT_THAT(Indices(Shuffled(5, 1, 2), 7, 3), ElementsAre(5, 4, 2, 1));
}

TEST(EpochPlanTest, PadsManyTimesOverWhereRanksOutnumberSamples) {
  EXPECT_THAT(Indices(Shuffled(0, 4, 5), 2, 1), ElementsAre(1));
  EXPECT_THAT(Indices(Shuffled(9, 7, 8), 2, 2), ElementsAre(0));
}

TEST(EpochPlanTest, FlagsPaddingAndNothingElse) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const auto samples = All(EpochPlan(Sequential(rank, 4), 10, 2, false, 0));
    ASSERT_EQ(samples.size(), 3u);
    EXPECT_FALSE(samples[0].pad);
    EXPECT_FALSE(samples[1].pad);
    EXPECT_EQ(samples[2].pad, rank >= 2);
  }
}

TEST(EpochPlanTest, SamplesThatAreNoPaddingComeOnceOverAllRanks) {
  for (const ShardRule shard : {ShardRule::kPad, ShardRule::kUneven}) {
    for (const uint64_t n : {1, 2, 7, 64, 65}) {
      std::map<uint64_t, int> seen;
      for (uint32_t rank = 0; rank < 8; ++rank) {
        for (const auto& sample : All(EpochPlan(Shuffled(3, rank, 8, shard), n, 4, false, 2))) {
          if (!sample.pad) ++seen[sample.index];
        }
      }
      EXPECT_EQ(seen.size(), n);
      for (const auto& [index, count] : seen) EXPECT_EQ(count, 1) << index;
    }
  }
}

TEST(EpochPlanTest, UnevenRanksDifferByOneSample) {
  EXPECT_THAT(Indices(Sequential(0, 3, ShardRule::kUneven), 7), ElementsAre(0, 3, 6));
  EXPECT_THAT(Indices(Sequential(1, 3, ShardRule::kUneven), 7), ElementsAre(1, 4));
  EXPECT_THAT(Indices(Sequential(2, 3, ShardRule::kUneven), 7), ElementsAre(2, 5));
}

TEST(EpochPlanTest, LastBatchIsShortOrDropped) {
  EXPECT_THAT(BatchSizes(EpochPlan(Sequential(), 10, 4, false, 0)), ElementsAre(4, 4, 2));
  EXPECT_THAT(BatchSizes(EpochPlan(Sequential(), 10, 4, true, 0)), ElementsAre(4, 4));
  EXPECT_THAT(BatchSizes(EpochPlan(Sequential(), 8, 4, false, 0)), ElementsAre(4, 4));
}

TEST(EpochPlanTest, BatchReplacesWhatTheVectorHeld) {
  const EpochPlan plan(Sequential(), 5, 2, false, 0);
  std::vector<PlannedSample> out(7);
  plan.Batch(2, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].index, 4u);
}

TEST(EpochPlanTest, EpochAddsToTheSeedAndWrapsAround) {
  EXPECT_EQ(Indices(Shuffled(40), 50, 2), Indices(Shuffled(42), 50, 0));
  EXPECT_NE(Indices(Shuffled(40), 50, 0), Indices(Shuffled(40), 50, 1));
  EXPECT_EQ(Indices(Shuffled(UINT64_MAX), 50, 4), Indices(Shuffled(3), 50, 0));
}

TEST(EpochPlanTest, SumsNeedNoPermutation) {
  const uint64_t n = 1ull << 31;
  EXPECT_EQ(EpochPlan::NumSamples(Shuffled(0, 1, 3), n), 715'827'883u);
  EXPECT_EQ(EpochPlan::NumSamples(Shuffled(0, 1, 3, ShardRule::kDrop), n), 715'827'882u);
  EXPECT_EQ(EpochPlan::NumSamples(Shuffled(0, 2, 3, ShardRule::kUneven), n), 715'827'882u);
  EXPECT_EQ(EpochPlan::NumBatches(Shuffled(0), n, 256, true), n / 256);
}

TEST(CheckNotEmptyTest, TellsWhatLeavesNothing) {
  EXPECT_THAT(CheckNotEmpty(Sequential(), 0, 1, false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no samples")));
  EXPECT_THAT(
      CheckNotEmpty(Sequential(), 7, 8, true),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("drop_last"), HasSubstr("7 of 7"), HasSubstr("batch_size is 8"))));
  EXPECT_THAT(CheckNotEmpty(Sequential(0, 4, ShardRule::kDrop), 3, 1, false),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("order.shard: DROP"), HasSubstr("rank 0 of 4"))));
  EXPECT_THAT(CheckNotEmpty(Sequential(3, 4, ShardRule::kUneven), 3, 1, false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("order.shard: UNEVEN")));
  EXPECT_THAT(CheckNotEmpty(Sequential(), 1ull << 32, 1, false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4294967295")));
  EXPECT_THAT(CheckNotEmpty(Sequential(), 7, 8, false), IsOk());
  EXPECT_THAT(CheckNotEmpty({.kind = OrderKind::kExplicit}, 3, 8, true), IsOk());
}

TEST(SubstituteTest, IsAFunctionOfItsArguments) {
  EXPECT_EQ(Substitute(1000, 7, 12, 3), Substitute(1000, 7, 12, 3));
  std::set<uint64_t> answers;
  for (int attempt = 0; attempt < 8; ++attempt)
    answers.insert(Substitute(1u << 31, 7, 12, attempt));
  EXPECT_EQ(answers.size(), 8u);
  EXPECT_NE(Substitute(1u << 31, 7, 12, 0), Substitute(1u << 31, 8, 12, 0));
  EXPECT_NE(Substitute(1u << 31, 7, 12, 0), Substitute(1u << 31, 7, 13, 0));
}

TEST(SubstituteTest, IsPinned) {
  // Cursors outlive daemons: these must never change.
  EXPECT_EQ(Substitute(1, 0, 0, 0), 0u);
  EXPECT_EQ(Substitute(1'000'000, 0, 0, 0), 138709u);
  EXPECT_EQ(Substitute(1'000'000, 42, 17, 7), 81885u);
}

TEST(SubstituteTest, IsUniform) {
  constexpr int kCells = 10, kDraws = 80'000;
  std::vector<int> cells(kCells);
  for (uint64_t index = 0; index < kDraws / 8; ++index) {
    for (int attempt = 0; attempt < 8; ++attempt) ++cells[Substitute(kCells, 5, index, attempt)];
  }
  double chi2 = 0;
  for (const int count : cells) chi2 += (count - 8000.0) * (count - 8000.0) / 8000.0;
  EXPECT_LT(chi2, 27.9);  // 9 degrees of freedom, p = 0.001
}

}  // namespace
}  // namespace loaderd::plan
