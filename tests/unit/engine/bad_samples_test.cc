// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "server/engine/engine.h"
#include "server/plan/epoch_plan.h"
#include "tests/unit/engine/front.h"

namespace loaderd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class BadSamplesTest : public EngineFixture {
 protected:
  std::unique_ptr<Session> Begin(BadSamplePolicy policy, uint64_t seed = 0) {
    plan::Job job = JobOf(4);
    job.on_bad_sample = policy;
    job.order.seed = seed;
    auto session = Open(job, dataset, front);
    EXPECT_TRUE(session->Start(0, 0, 1, false).ok());
    EXPECT_TRUE(session->Want(20).ok());
    return session;
  }
  std::shared_ptr<FakeDataset> dataset = std::make_shared<FakeDataset>(16);
  Front front;
};

TEST_F(BadSamplesTest, FailNamesTheFirstInOrderListsAllAndGoesOn) {
  dataset->Corrupt(6);
  dataset->FailRead(5, "no right to it");
  auto session = Begin(BadSamplePolicy::kFail);
  EXPECT_EQ(front.Next().count, 4u);
  const Delivery failed = front.Next();
  EXPECT_EQ(failed.step, 1u);
  EXPECT_EQ(failed.handling, Handling::kNone);
  EXPECT_EQ(failed.count, 0u);
  EXPECT_EQ(failed.error, "batch 1: /fake/5.jpg: no right to it");
  ASSERT_EQ(failed.bad.size(), 2u);
  EXPECT_EQ(failed.bad[0].index, 5);
  EXPECT_EQ(failed.bad[1].index, 6);
  EXPECT_EQ(failed.bad[1].substitute, -1);
  EXPECT_THAT(failed.bad[1].reason, StartsWith("/fake/6.jpg: "));
  EXPECT_THAT(IndicesOf(*session, front.Next()), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(IndicesOf(*session, front.Next()), ElementsAre(12, 13, 14, 15));
  EXPECT_TRUE(front.Next().epoch_end);
  EXPECT_EQ(session->facts().bad_samples, 2u);
  EXPECT_EQ(session->facts().batches_delivered, 3u);
  EXPECT_EQ(session->facts().slots_lent, 3u);
}

TEST_F(BadSamplesTest, EveryBatchFailingNeedsNoRelease) {
  for (uint64_t i = 0; i < 16; i += 4) dataset->Corrupt(i);
  auto session = Begin(BadSamplePolicy::kFail);
  for (uint64_t step = 0; step < 4; ++step) EXPECT_EQ(front.Next().handling, Handling::kNone);
  EXPECT_TRUE(front.Next().epoch_end);
  EXPECT_EQ(session->facts().slots_free, 5u);
}

TEST_F(BadSamplesTest, SkipShortensTheBatchAndKeepsTheOrderOfTheRest) {
  dataset->Corrupt(0);
  dataset->Corrupt(2);
  dataset->FailRead(7, "gone");
  auto session = Begin(BadSamplePolicy::kSkip);
  const Delivery first = front.Next();
  EXPECT_EQ(first.count, 2u);
  EXPECT_THAT(IndicesOf(*session, first), ElementsAre(1, 3));
  ASSERT_EQ(first.bad.size(), 2u);
  EXPECT_EQ(first.bad[0].index, 0);
  EXPECT_EQ(first.bad[1].index, 2);
  EXPECT_TRUE(first.error.empty());
  const Delivery second = front.Next();
  EXPECT_THAT(IndicesOf(*session, second), ElementsAre(4, 5, 6));
  ASSERT_EQ(second.bad.size(), 1u);
  EXPECT_EQ(second.bad[0].reason, "/fake/7.jpg: gone");
  EXPECT_THAT(IndicesOf(*session, front.Next()), ElementsAre(8, 9, 10, 11));
}

TEST_F(BadSamplesTest, SkipDeliversABatchWithoutSamplesWithItsSlot) {
  for (uint64_t i = 4; i < 8; ++i) dataset->Corrupt(i);
  auto session = Begin(BadSamplePolicy::kSkip);
  front.Next();
  const Delivery empty = front.Next();
  EXPECT_EQ(empty.count, 0u);
  EXPECT_EQ(empty.handling, Handling::kLend);
  EXPECT_EQ(empty.bad.size(), 4u);
  Release(*session, empty);
  EXPECT_EQ(front.Next().step, 2u);
}

TEST_F(BadSamplesTest, SubstituteKeepsTheCountAndTellsTheStandIn) {
  dataset->Corrupt(5);
  auto session = Begin(BadSamplePolicy::kSubstitute, 77);
  front.Next();
  const Delivery delivery = front.Next();
  EXPECT_EQ(delivery.count, 4u);
  std::vector<uint64_t> chain;
  for (int attempt = 0; attempt < 8; ++attempt)
    chain.push_back(plan::Substitute(16, 77, 5, attempt));
  const auto stand_in = std::ranges::find_if(chain, [](uint64_t index) { return index != 5; });
  ASSERT_NE(stand_in, chain.end());
  const auto expected = static_cast<int64_t>(*stand_in);
  EXPECT_THAT(IndicesOf(*session, delivery), ElementsAre(4, expected, 6, 7));
  ASSERT_EQ(delivery.bad.size(), 1u);
  EXPECT_EQ(delivery.bad[0].index, 5);
  EXPECT_EQ(delivery.bad[0].substitute, expected);
  EXPECT_THAT(delivery.bad[0].reason, StartsWith("/fake/5.jpg: "));
}

// A seed with which the eighth stand-in of `index` is none of those before it, nor itself.
uint64_t SeedWithALateStandIn(uint64_t n, uint64_t index) {
  for (uint64_t seed = 0;; ++seed) {
    const uint64_t last = plan::Substitute(n, seed, index, 7);
    bool earlier = last == index;
    for (int attempt = 0; attempt < 7; ++attempt) {
      earlier |= plan::Substitute(n, seed, index, attempt) == last;
    }
    if (!earlier) return seed;
  }
}

TEST_F(BadSamplesTest, SubstituteTriesEightStandIns) {
  const uint64_t seed = SeedWithALateStandIn(16, 1);
  const uint64_t good = plan::Substitute(16, seed, 1, 7);
  for (uint64_t index = 0; index < 16; ++index) {
    if (index != good) dataset->Corrupt(index);
  }
  auto session = Begin(BadSamplePolicy::kSubstitute, seed);
  const Delivery delivery = front.Next();
  const auto bad = std::ranges::find(delivery.bad, 1, &BadSample::index);
  ASSERT_NE(bad, delivery.bad.end());
  EXPECT_EQ(bad->substitute, static_cast<int64_t>(good));
}

TEST_F(BadSamplesTest, SubstituteWithNothingGoodFailsTheBatch) {
  for (uint64_t i = 0; i < 16; ++i) dataset->Corrupt(i);
  auto session = Begin(BadSamplePolicy::kSubstitute);
  for (uint64_t step = 0; step < 4; ++step) {
    const Delivery delivery = front.Next();
    EXPECT_EQ(delivery.handling, Handling::kNone);
    EXPECT_THAT(delivery.error, StartsWith("batch " + std::to_string(step) + ": /fake/" +
                                           std::to_string(4 * step) + ".jpg: "));
    EXPECT_EQ(delivery.bad.size(), 4u);
  }
  EXPECT_TRUE(front.Next().epoch_end);
  EXPECT_EQ(dataset->reads(), 16u * 9);
  EXPECT_EQ(engine->counters().bad_samples, 16u);
}

TEST_F(BadSamplesTest, RestartDropsStandInsThatHaveNotBeenRead) {
  for (uint64_t i = 0; i < 8; ++i) dataset->Corrupt(i);
  dataset->Slow(std::chrono::microseconds(300));
  auto session = Begin(BadSamplePolicy::kSubstitute);
  for (uint64_t start = 2; start < 40; ++start) {
    std::this_thread::sleep_for(std::chrono::microseconds(start * 53 % 1000));
    ASSERT_TRUE(session->Start(0, start % 2 * 3, start, false).ok());
  }
  ASSERT_TRUE(session->Start(0, 3, 40, false).ok());
  while (front.NextWithin(std::chrono::milliseconds(20)).has_value()) {
  }
  ASSERT_TRUE(session->Want(2).ok());
  EXPECT_THAT(IndicesOf(*session, front.Next()), ElementsAre(12, 13, 14, 15));
  EXPECT_TRUE(front.Next().epoch_end);
}

}  // namespace
}  // namespace loaderd::engine
