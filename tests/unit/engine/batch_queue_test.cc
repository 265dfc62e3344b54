// SPDX-License-Identifier: Apache-2.0
// The rules alone, with no thread: each step is made by hand.
#include "server/engine/batch_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace loaderd::engine {
namespace {

using ::testing::ElementsAre;

// A queue over n samples in sequential order.
class Queue {
 public:
  Queue(uint64_t n, uint32_t batch_size, uint32_t slots,
        BadSamplePolicy policy = BadSamplePolicy::kFail, uint32_t present_slots = UINT32_MAX)
      : n_(n), batch_size_(batch_size), queue(Rules(n, batch_size, slots, policy, present_slots)) {}

  // The next piece, made possible by a plan where it lacks one.
  std::optional<Piece> Take() {
    for (;;) {
      if (auto piece = queue.TakePiece()) return piece;
      const auto missing = queue.MissingPlan();
      if (!missing) return std::nullopt;
      ++plans_made;
      queue.SetPlan(*missing, std::make_unique<plan::EpochPlan>(plan::Order{}, n_, batch_size_,
                                                                false, *missing));
    }
  }
  std::vector<Piece> TakeAll() {
    std::vector<Piece> pieces;
    while (auto piece = Take()) pieces.push_back(*piece);
    return pieces;
  }
  BatchQueue::After End(const Piece& piece, std::string fault = "") {
    return queue.EndPiece(piece, std::move(fault));
  }
  SessionFacts facts() const {
    SessionFacts facts;
    queue.Tell(facts);
    return facts;
  }

  const uint64_t n_;
  const uint32_t batch_size_;
  BatchQueue queue;
  int plans_made = 0;

 private:
  static BatchQueue::Rules Rules(uint64_t n, uint32_t batch_size, uint32_t slots,
                                 BadSamplePolicy policy, uint32_t present_slots) {
    BatchQueue::Rules rules;
    rules.num_samples = n;
    rules.num_batches = (n + batch_size - 1) / batch_size;
    rules.batch_size = batch_size;
    rules.slots = slots;
    rules.present_slots = present_slots;
    rules.policy = policy;
    return rules;
  }
};

// What is delivered next, of a queue whose pieces all end well.
std::optional<Delivery> Complete(Queue& q) {
  for (const Piece& piece : q.TakeAll()) q.End(piece);
  return q.queue.NextDelivery();
}

TEST(BatchQueueTest, SlotsWithoutPagesAreFilledWhenTheyHaveThem) {
  Queue q(6, 2, 3, BadSamplePolicy::kFail, 1);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  ASSERT_TRUE(q.queue.Want(3).ok());
  EXPECT_EQ(q.TakeAll().size(), 2u);  // and no more than the one slot's
  EXPECT_EQ(q.facts().slots, 3u);
  EXPECT_EQ(q.facts().slots_free, 2u);
  EXPECT_EQ(q.queue.NextAbsentSlot(), 1u);
  q.queue.AddSlot(1);
  EXPECT_EQ(q.TakeAll().size(), 2u);
  EXPECT_EQ(q.queue.NextAbsentSlot(), 2u);
  q.queue.Close();
  EXPECT_EQ(q.queue.NextAbsentSlot(), std::nullopt);
}

TEST(BatchQueueTest, FirstBatchWaitsUntilItIsKnownWhetherItsSlotIsTheLast) {
  Queue q(6, 2, 3, BadSamplePolicy::kFail, 1);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  ASSERT_TRUE(q.queue.Want(3).ok());
  EXPECT_FALSE(Complete(q).has_value());
  q.queue.AddSlot(1);
  const auto first = q.queue.NextDelivery();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->handling, Handling::kLend);
  EXPECT_FALSE(Complete(q).has_value());
  q.queue.GiveUpSlots();
  const auto second = q.queue.NextDelivery();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->handling, Handling::kCopy);
  EXPECT_EQ(q.facts().slots, 2u);
}

TEST(BatchQueueTest, SessionWhoseOtherSlotsGetNoPagesGoesOnWithOne) {
  Queue q(6, 2, 3, BadSamplePolicy::kFail, 1);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  ASSERT_TRUE(q.queue.Want(4).ok());
  q.queue.GiveUpSlots();
  for (uint64_t step = 0; step < 3; ++step) {
    const auto delivery = Complete(q);
    ASSERT_TRUE(delivery.has_value());
    EXPECT_EQ(delivery->step, step);
    EXPECT_EQ(delivery->handling, Handling::kCopy);
    ASSERT_TRUE(q.queue.Release(std::vector<uint32_t>{delivery->slot}).ok());
  }
  EXPECT_TRUE(Complete(q)->epoch_end);
}

// Ends all that can be taken with the storage's fault, and returns what is delivered.
std::vector<Delivery> FailAll(BatchQueue& queue, Queue& q) {
  std::vector<Delivery> out;
  while (const auto piece = q.Take()) {
    if (queue.EndPiece(*piece, "x.jpg: I/O error", true) == BatchQueue::After::kFinish)
      queue.EndFinish(piece->slot);
    while (auto delivery = queue.NextDelivery()) {
      if (delivery->handling != Handling::kNone) {
        EXPECT_TRUE(queue.Release(std::vector<uint32_t>{delivery->slot}).ok());
      }
      out.push_back(*std::move(delivery));
    }
  }
  return out;
}

TEST(BatchQueueTest, StorageThatIsGoneFailsTheStepUnderEveryPolicy) {
  for (const BadSamplePolicy policy : {BadSamplePolicy::kSkip, BadSamplePolicy::kSubstitute}) {
    Queue q(400, 10, 4, policy);
    ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
    ASSERT_TRUE(q.queue.Want(1000).ok());
    const std::vector<Delivery> all = FailAll(q.queue, q);
    ASSERT_EQ(all.size(), 41u);
    int skipped = 0;
    for (const Delivery& delivery : all) {
      if (delivery.handling != Handling::kNone) skipped += static_cast<int>(delivery.bad.size());
    }
    EXPECT_LE(skipped, 100);
    EXPECT_TRUE(all[39].storage_gone);
    EXPECT_EQ(all[39].handling, Handling::kNone);
    EXPECT_THAT(all[39].error, testing::HasSubstr("x.jpg: I/O error; 10 of its samples are lost"));
  }
}

TEST(BatchQueueTest, OneGoodReadEndsTheRowOfStorageFailures) {
  Queue q(400, 10, 4, BadSamplePolicy::kSkip);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  ASSERT_TRUE(q.queue.Want(1000).ok());
  for (int i = 0; const auto piece = q.Take(); ++i) {
    const bool good = i % 50 == 0;
    if (q.queue.EndPiece(*piece, good ? "" : "x.jpg: I/O error", !good) ==
        BatchQueue::After::kFinish)
      q.queue.EndFinish(piece->slot);
    while (const auto delivery = q.queue.NextDelivery()) {
      if (delivery->epoch_end) break;
      EXPECT_FALSE(delivery->storage_gone);
      EXPECT_TRUE(q.queue.Release(std::vector<uint32_t>{delivery->slot}).ok());
    }
  }
}

TEST(BatchQueueTest, NothingIsPlannedBeforeStart) {
  Queue q(8, 2, 2);
  EXPECT_FALSE(q.Take().has_value());
  EXPECT_EQ(q.plans_made, 0);
}

TEST(BatchQueueTest, PiecesComeInBatchAndSampleOrderUntilTheSlotsAreTaken) {
  Queue q(8, 2, 2);
  ASSERT_TRUE(q.queue.Start(0, 1, 1, false).ok());
  const auto pieces = q.TakeAll();
  ASSERT_EQ(pieces.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(pieces[i].index, i + 2);
    EXPECT_EQ(pieces[i].row, i % 2);
    EXPECT_EQ(pieces[i].step, 1 + i / 2);
  }
}

TEST(BatchQueueTest, ABatchThatIsReadyWaitsForTheOneBeforeIt) {
  Queue q(4, 2, 2);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  ASSERT_TRUE(q.queue.Want(3).ok());
  const auto pieces = q.TakeAll();
  q.End(pieces[3]);
  q.End(pieces[2]);
  q.End(pieces[1]);
  EXPECT_FALSE(q.queue.NextDelivery().has_value());
  q.End(pieces[0]);
  EXPECT_EQ(q.queue.NextDelivery()->step, 0u);
  EXPECT_EQ(q.queue.NextDelivery()->step, 1u);
  EXPECT_TRUE(q.queue.NextDelivery()->epoch_end);
  EXPECT_FALSE(q.queue.NextDelivery().has_value());
}

TEST(BatchQueueTest, TheSlotOfADroppedBatchIsFreeOnlyAfterItsLastPiece) {
  Queue q(8, 2, 1);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  const Piece first = *q.Take();
  const Piece second = *q.Take();
  ASSERT_TRUE(q.queue.Start(0, 2, 2, false).ok());
  EXPECT_FALSE(q.queue.Wanted(first));
  EXPECT_FALSE(q.Take().has_value());
  EXPECT_EQ(q.End(first, "torn"), BatchQueue::After::kNothing);
  EXPECT_FALSE(q.Take().has_value());
  EXPECT_EQ(q.End(second), BatchQueue::After::kWork);
  EXPECT_EQ(q.Take()->index, 4u);
}

TEST(BatchQueueTest, RowsOfADroppedBatchThatNobodyTookAreNeverRead) {
  Queue q(8, 4, 1);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  q.End(*q.Take());
  ASSERT_TRUE(q.queue.Start(0, 1, 2, false).ok());
  const auto pieces = q.TakeAll();
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[0].index, 4u);
}

TEST(BatchQueueTest, OneEpochAheadIsPlannedAndNoMore) {
  Queue q(2, 2, 5);
  ASSERT_TRUE(q.queue.Start(7, 0, 1, true).ok());
  const auto pieces = q.TakeAll();
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[1].epoch, 7u);
  EXPECT_EQ(pieces[2].epoch, 8u);
  EXPECT_EQ(q.facts().slots_free, 3u);
  ASSERT_TRUE(q.queue.Start(8, 0, 2, true).ok());
  EXPECT_TRUE(q.queue.Wanted(pieces[2]));
  EXPECT_FALSE(q.queue.Wanted(pieces[0]));
  EXPECT_EQ(q.Take()->epoch, 9u);
}

TEST(BatchQueueTest, TheEpochAheadIsDroppedWhenItWillNotBeAskedFor) {
  Queue q(4, 2, 5);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, true).ok());
  const auto pieces = q.TakeAll();
  ASSERT_EQ(pieces.size(), 8u);
  ASSERT_TRUE(q.queue.Start(0, 1, 2, false).ok());
  EXPECT_FALSE(q.queue.Wanted(pieces[0]));
  EXPECT_TRUE(q.queue.Wanted(pieces[2]));
  EXPECT_FALSE(q.queue.Wanted(pieces[4]));
  EXPECT_FALSE(q.queue.Wanted(pieces[6]));
  EXPECT_FALSE(q.Take().has_value());
}

TEST(BatchQueueTest, PlansOfTwoEpochsAreKept) {
  Queue q(2, 2, 5);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, true).ok());
  q.TakeAll();
  EXPECT_EQ(q.plans_made, 2);
  ASSERT_TRUE(q.queue.Start(1, 0, 2, true).ok());
  q.TakeAll();
  EXPECT_EQ(q.plans_made, 3);
  ASSERT_TRUE(q.queue.Start(2, 0, 3, false).ok());
  q.TakeAll();
  EXPECT_EQ(q.plans_made, 3);
}

TEST(BatchQueueTest, RemovalHoldsTheSlotAndComesBeforeDelivery) {
  Queue q(3, 3, 1, BadSamplePolicy::kSkip);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  ASSERT_TRUE(q.queue.Want(1).ok());
  const auto pieces = q.TakeAll();
  q.End(pieces[2], "c");
  q.End(pieces[1]);
  EXPECT_EQ(q.End(pieces[0], "a"), BatchQueue::After::kFinish);
  EXPECT_THAT(q.queue.LostRows(0), ElementsAre(0, 2));
  EXPECT_EQ(q.queue.PlannedRows(0), 3u);
  EXPECT_EQ(q.queue.in_flight(), 1u);
  EXPECT_FALSE(q.queue.NextDelivery().has_value());
  q.queue.EndFinish(0);
  EXPECT_EQ(q.queue.NextDelivery()->count, 1u);
  EXPECT_EQ(q.queue.in_flight(), 0u);
}

TEST(BatchQueueTest, ABatchDroppedDuringRemovalFreesItsSlotAfterIt) {
  Queue q(4, 2, 1, BadSamplePolicy::kSkip);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  const auto pieces = q.TakeAll();
  q.End(pieces[1], "b");
  ASSERT_EQ(q.End(pieces[0]), BatchQueue::After::kFinish);
  ASSERT_TRUE(q.queue.Start(0, 1, 2, false).ok());
  EXPECT_FALSE(q.Take().has_value());
  EXPECT_EQ(q.queue.EndFinish(0), BatchQueue::After::kWork);
  EXPECT_EQ(q.Take()->index, 2u);
}

TEST(BatchQueueTest, StandInsAreTakenFirst) {
  Queue q(8, 2, 4, BadSamplePolicy::kSubstitute);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  const Piece bad = *q.Take();
  EXPECT_EQ(q.End(bad, "torn"), BatchQueue::After::kWork);
  const Piece stand_in = *q.Take();
  EXPECT_EQ(stand_in.row, bad.row);
  EXPECT_EQ(stand_in.planned, bad.index);
  EXPECT_EQ(stand_in.attempt, 0);
  EXPECT_EQ(stand_in.index, plan::Substitute(8, 0, bad.index, 0));
}

TEST(BatchQueueTest, ABatchIsPlannedOnlyWhereThereIsARoomForItToo) {
  BatchQueue::Rules rules;
  rules.num_samples = 8;
  rules.num_batches = 4;
  rules.batch_size = 2;
  rules.slots = 4;
  rules.rooms = 2;
  BatchQueue queue(rules);
  ASSERT_TRUE(queue.Start(0, 0, 1, false).ok());
  ASSERT_TRUE(queue.Want(5).ok());
  queue.SetPlan(0, std::make_unique<plan::EpochPlan>(plan::Order{}, 8, 2, false, 0));
  std::vector<Piece> pieces;
  while (const auto piece = queue.TakePiece()) pieces.push_back(*piece);
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[0].room, pieces[1].room);
  EXPECT_NE(pieces[0].room, pieces[2].room);
  EXPECT_EQ(queue.EndPiece(pieces[0], ""), BatchQueue::After::kNothing);
  EXPECT_EQ(queue.EndPiece(pieces[1], ""), BatchQueue::After::kFinish);
  EXPECT_FALSE(queue.NextDelivery().has_value());
  EXPECT_FALSE(queue.TakePiece().has_value());
  EXPECT_EQ(queue.EndFinish(pieces[0].slot), BatchQueue::After::kWork);
  EXPECT_EQ(queue.NextDelivery()->step, 0u);
  EXPECT_EQ(queue.TakePiece()->room, pieces[0].room);
  // A batch that fails whole is not finished, and leaves its room at once.
  EXPECT_EQ(queue.EndPiece(pieces[2], "torn"), BatchQueue::After::kNothing);
  EXPECT_EQ(queue.EndPiece(pieces[3], ""), BatchQueue::After::kWork);
}

TEST(BatchQueueTest, AfterCloseNothingIsTakenOrDelivered) {
  Queue q(4, 2, 2);
  ASSERT_TRUE(q.queue.Start(0, 0, 1, false).ok());
  const auto pieces = q.TakeAll();
  q.End(pieces[0]);
  q.End(pieces[1]);
  q.queue.Close();
  ASSERT_TRUE(q.queue.Want(1).ok());
  EXPECT_FALSE(q.queue.NextDelivery().has_value());
  EXPECT_FALSE(q.Take().has_value());
  EXPECT_EQ(q.queue.in_flight(), 2u);
  q.End(pieces[2]);
  q.End(pieces[3]);
  EXPECT_EQ(q.queue.in_flight(), 0u);
}

}  // namespace
}  // namespace loaderd::engine
