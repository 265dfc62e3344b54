// SPDX-License-Identifier: Apache-2.0
// Starts, restarts, planning ahead and the explicit order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "server/engine/engine.h"
#include "tests/unit/engine/front.h"

namespace loaderd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EpochsTest : public EngineFixture {
 protected:
  // Takes and releases deliveries up to and with the epoch's end; the indices in order.
  std::vector<int64_t> TakeEpoch(Session& session, Front& front, uint64_t start) {
    std::vector<int64_t> all;
    for (;;) {
      EXPECT_TRUE(session.Want(1).ok());
      const Delivery delivery = front.Next();
      EXPECT_EQ(delivery.start, start);
      if (delivery.epoch_end || HasFailure()) return all;
      const auto indices = IndicesOf(session, delivery);
      all.insert(all.end(), indices.begin(), indices.end());
      Release(session, delivery);
    }
  }
  static std::vector<int64_t> Range(int64_t from, int64_t to) {
    std::vector<int64_t> range(static_cast<size_t>(to - from));
    std::iota(range.begin(), range.end(), from);
    return range;
  }
};

TEST_F(EpochsTest, StartPastTheEndIsRefusedAndAtTheEndDeliversTheEnd) {
  Front front;
  auto session = Open(JobOf(4), std::make_shared<FakeDataset>(16), front);
  EXPECT_EQ(session->Start(0, 5, 1, false).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(session->Start(0, 4, 2, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  const Delivery end = front.Next();
  EXPECT_TRUE(end.epoch_end);
  EXPECT_EQ(end.start, 2u);
  EXPECT_EQ(end.num_batches, 4u);
}

TEST_F(EpochsTest, ACursorInMidEpochGivesTheRestOfIt) {
  Front front;
  auto session = Open(JobOf(4), std::make_shared<FakeDataset>(18), front);
  ASSERT_TRUE(session->Start(0, 3, 1, false).ok());
  EXPECT_EQ(TakeEpoch(*session, front, 1), Range(12, 18));
}

TEST_F(EpochsTest, TheNextEpochIsReadAheadAndUsed) {
  auto dataset = std::make_shared<FakeDataset>(12);
  Front front;
  auto session = Open(JobOf(4), dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, true).ok());
  EXPECT_EQ(TakeEpoch(*session, front, 1), Range(0, 12));
  EXPECT_TRUE(Eventually([&] { return session->facts().slots_ready == 3; }));
  EXPECT_EQ(dataset->reads(), 24u);
  ASSERT_TRUE(session->Start(1, 0, 2, false).ok());
  EXPECT_EQ(TakeEpoch(*session, front, 2), Range(0, 12));
  EXPECT_EQ(dataset->reads(), 24u);
}

TEST_F(EpochsTest, WithoutGoesOnNothingIsReadPastTheEpoch) {
  auto dataset = std::make_shared<FakeDataset>(12);
  Front front;
  auto session = Open(JobOf(4), dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  TakeEpoch(*session, front, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(dataset->reads(), 12u);
}

TEST_F(EpochsTest, AnEpochReadAheadIsDroppedWhenAnotherIsAskedFor) {
  plan::Job job = JobOf(4, plan::OrderKind::kTorchShuffle);
  auto dataset = std::make_shared<FakeDataset>(12);
  Front front;
  auto session = Open(job, dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, true).ok());
  const std::vector<int64_t> first = TakeEpoch(*session, front, 1);
  EXPECT_TRUE(Eventually([&] { return session->facts().slots_ready == 3; }));
  ASSERT_TRUE(session->Start(0, 0, 2, false).ok());
  EXPECT_EQ(TakeEpoch(*session, front, 2), first);
  EXPECT_EQ(dataset->reads(), 36u);
}

TEST_F(EpochsTest, RestartInMidEpochKeepsWhatIsAtItsPlace) {
  auto dataset = std::make_shared<FakeDataset>(40);
  Front front;
  auto session = Open(JobOf(4), dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  EXPECT_TRUE(Eventually([&] { return session->facts().slots_ready == 5; }));
  ASSERT_TRUE(session->Start(0, 2, 2, false).ok());
  EXPECT_EQ(TakeEpoch(*session, front, 2), Range(8, 40));
  EXPECT_EQ(dataset->reads(), 40u);
}

TEST_F(EpochsTest, RestartWhileReadsAreStuckDeliversNoStaleData) {
  auto dataset = std::make_shared<FakeDataset>(40);
  dataset->Block(1);
  Front front;
  auto session = Open(JobOf(4), dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(dataset->WaitForBlocked(1));
  ASSERT_TRUE(session->Start(0, 5, 2, false).ok());
  EXPECT_EQ(TakeEpoch(*session, front, 2), Range(20, 40));
  // The stuck piece keeps its slot until it ends.
  EXPECT_EQ(session->facts().slots_filling, 1u);
  dataset->Unblock();
  EXPECT_TRUE(Eventually([&] { return session->facts().slots_free == 5; }));
}

TEST_F(EpochsTest, LentSlotsStayLentOverARestart) {
  Front front;
  auto session = Open(JobOf(4), std::make_shared<FakeDataset>(80), front);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(2).ok());
  const Delivery first = front.Next();
  const Delivery second = front.Next();
  ASSERT_TRUE(session->Start(0, 10, 2, false).ok());
  EXPECT_EQ(session->facts().slots_lent, 2u);
  EXPECT_EQ(TakeEpoch(*session, front, 2), Range(40, 80));
  EXPECT_EQ(IndicesOf(*session, first), Range(0, 4));
  EXPECT_EQ(IndicesOf(*session, second), Range(4, 8));
  Release(*session, first);
  Release(*session, second);
}

TEST_F(EpochsTest, StartForgetsWhatWasWanted) {
  Front front;
  auto session = Open(JobOf(4), std::make_shared<FakeDataset>(80), front);
  ASSERT_TRUE(session->Want(100).ok());
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  EXPECT_TRUE(front.Quiet());
}

class ExplicitTest : public EpochsTest {
 protected:
  ExplicitTest() : job_(JobOf(4, plan::OrderKind::kExplicit)) {}
  plan::Job job_;
  std::shared_ptr<FakeDataset> dataset_ = std::make_shared<FakeDataset>(100);
  Front front_;
};

Status Add(Session& session, uint64_t start, uint64_t batch, std::vector<int64_t> indices,
           bool last = true, bool end = false) {
  return session.AddIndices(start, batch, indices, last, end);
}

TEST_F(ExplicitTest, BatchesOfAnySizeComeAsTheyWereFed) {
  auto session = Open(job_, dataset_, front_);
  EXPECT_EQ(session->num_batches(), 0u);
  ASSERT_TRUE(session->Start(4, 2, 9, false).ok());
  ASSERT_TRUE(session->Want(4).ok());
  ASSERT_TRUE(Add(*session, 9, 2, {5, 5}, false).ok());
  EXPECT_TRUE(front_.Quiet());
  ASSERT_TRUE(Add(*session, 9, 2, {99}).ok());
  ASSERT_TRUE(Add(*session, 9, 3, {7}).ok());
  const Delivery first = front_.Next();
  EXPECT_EQ(first.step, 2u);
  EXPECT_EQ(first.epoch, 4u);
  EXPECT_THAT(IndicesOf(*session, first), ElementsAre(5, 5, 99));
  EXPECT_THAT(IndicesOf(*session, front_.Next()), ElementsAre(7));
  EXPECT_TRUE(front_.Quiet());
  ASSERT_TRUE(Add(*session, 9, 4, {1, 2, 3, 4}, true, true).ok());
  EXPECT_THAT(IndicesOf(*session, front_.Next()), ElementsAre(1, 2, 3, 4));
  const Delivery end = front_.Next();
  EXPECT_TRUE(end.epoch_end);
  EXPECT_EQ(end.num_batches, 5u);
}

TEST_F(ExplicitTest, EndAloneEndsTheEpoch) {
  auto session = Open(job_, dataset_, front_);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(2).ok());
  ASSERT_TRUE(Add(*session, 1, 0, {3}).ok());
  ASSERT_TRUE(Add(*session, 1, 1, {}, false, true).ok());
  EXPECT_THAT(IndicesOf(*session, front_.Next()), ElementsAre(3));
  EXPECT_EQ(front_.Next().num_batches, 1u);
}

TEST_F(ExplicitTest, IndicesOutsideTheDatasetAreRefusedWithTheirValue) {
  auto session = Open(job_, dataset_, front_);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  for (const int64_t index : {int64_t{-1}, int64_t{100}, INT64_MIN, INT64_MAX}) {
    const Status status = Add(*session, 1, 0, {0, index});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("index " + std::to_string(index) + " "));
  }
}

TEST_F(ExplicitTest, IndicesOfAnEarlierStartAreIgnored) {
  auto session = Open(job_, dataset_, front_);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(Add(*session, 1, 0, {1}).ok());
  EXPECT_TRUE(Eventually([&] { return session->facts().slots_ready == 1; }));
  ASSERT_TRUE(session->Start(0, 0, 2, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  EXPECT_TRUE(Add(*session, 1, 1, {2}).ok());
  EXPECT_TRUE(front_.Quiet());
  EXPECT_TRUE(Add(*session, 2, 0, {3}).ok());
  EXPECT_THAT(IndicesOf(*session, front_.Next()), ElementsAre(3));
}

TEST_F(ExplicitTest, OtherOrdersTakeNoIndices) {
  auto session = Open(JobOf(4), dataset_, front_);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  EXPECT_EQ(Add(*session, 1, 0, {1}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loaderd::engine
