// SPDX-License-Identifier: Apache-2.0
// Order, backpressure and handling of batches, through the engine's own interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "server/engine/engine.h"
#include "server/plan/epoch_plan.h"
#include "tests/unit/engine/front.h"

namespace loaderd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeliveryTest : public EngineFixture {};

std::vector<int64_t> PlannedIndices(const plan::Job& job, uint64_t n, uint64_t epoch,
                                    uint64_t batch) {
  std::vector<plan::PlannedSample> samples;
  plan::EpochPlan(job.order, n, job.batch_size, job.drop_last, epoch).Batch(batch, samples);
  std::vector<int64_t> indices;
  for (const auto& sample : samples) indices.push_back(static_cast<int64_t>(sample.index));
  return indices;
}

TEST_F(DeliveryTest, BatchesComeInPlanOrderWhateverTheReadersDo) {
  auto dataset = std::make_shared<FakeDataset>(103);
  dataset->OnRead([](uint64_t index) {
    std::this_thread::sleep_for(std::chrono::microseconds(index * 7919 % 2000));
  });
  plan::Job job = JobOf(8, plan::OrderKind::kTorchShuffle);
  job.order.seed = 5;
  Front front;
  auto session = Open(job, dataset, front);
  ASSERT_EQ(session->num_batches(), 13u);
  EXPECT_EQ(session->epoch_samples(), 103u);
  ASSERT_TRUE(session->Start(2, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(14).ok());
  for (uint64_t step = 0; step < 13; ++step) {
    const Delivery delivery = front.Next();
    EXPECT_EQ(delivery.start, 1u);
    EXPECT_EQ(delivery.epoch, 2u);
    EXPECT_EQ(delivery.step, step);
    EXPECT_EQ(IndicesOf(*session, delivery), PlannedIndices(job, 103, 2, step));
    Release(*session, delivery);
  }
  const Delivery end = front.Next();
  EXPECT_TRUE(end.epoch_end);
  EXPECT_EQ(end.num_batches, 13u);
  EXPECT_TRUE(front.Quiet());
  EXPECT_EQ(engine->counters().samples_delivered, 103u);
  EXPECT_EQ(engine->counters().batches_delivered, 13u);
}

TEST_F(DeliveryTest, PaddedRepeatsAreFlagged) {
  auto dataset = std::make_shared<FakeDataset>(5);
  plan::Job job = JobOf(3);
  job.order.world_size = 2;
  job.order.rank = 1;
  Front front;
  auto session = Open(job, dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  const std::vector<Row> rows = RowsOf(*session, front.Next());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_FALSE(rows[0].pad);
  EXPECT_FALSE(rows[1].pad);
  EXPECT_TRUE(rows[2].pad);
  EXPECT_EQ(rows[2].index, 0);
}

TEST_F(DeliveryTest, NothingComesWithoutWant) {
  auto dataset = std::make_shared<FakeDataset>(40);
  Front front;
  auto session = Open(JobOf(4), dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  EXPECT_TRUE(Eventually([&] { return session->facts().slots_ready == 5; }));
  EXPECT_TRUE(front.Quiet());
  ASSERT_TRUE(session->Want(2).ok());
  EXPECT_EQ(front.Next().step, 0u);
  EXPECT_EQ(front.Next().step, 1u);
  EXPECT_TRUE(front.Quiet());
}

TEST_F(DeliveryTest, WantOutOfItsRangeIsRefused) {
  Front front;
  auto session = Open(JobOf(4), std::make_shared<FakeDataset>(8), front);
  EXPECT_EQ(session->Want(0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(session->Want(1024).ok());
  EXPECT_EQ(session->Want(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session->Want(UINT32_MAX).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DeliveryTest, NoMoreBatchesAreReadThanThereAreSlots) {
  auto dataset = std::make_shared<FakeDataset>(400);
  Front front;
  auto session = Open(JobOf(4), dataset, front);
  ASSERT_EQ(session->slot_count(), 5u);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  EXPECT_TRUE(Eventually([&] { return session->facts().slots_ready == 5; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(dataset->reads(), 20u);
  ASSERT_TRUE(session->Want(1).ok());
  const Delivery delivery = front.Next();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(dataset->reads(), 20u);
  Release(*session, delivery);
  EXPECT_TRUE(Eventually([&] { return dataset->reads() == 24u; }));
}

TEST_F(DeliveryTest, HoldingEveryBatchStillMakesProgressByCopies) {
  auto dataset = std::make_shared<FakeDataset>(40);
  Front front;
  auto session = Open(JobOf(2), dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(21).ok());
  int lent = 0;
  for (uint64_t step = 0; step < 20; ++step) {
    const Delivery delivery = front.Next();
    EXPECT_EQ(delivery.step, step);
    EXPECT_EQ(IndicesOf(*session, delivery), PlannedIndices(JobOf(2), 40, 0, step));
    if (delivery.handling == Handling::kLend) {
      ++lent;
    } else {
      EXPECT_EQ(delivery.handling, Handling::kCopy);
      Release(*session, delivery);
    }
  }
  EXPECT_TRUE(front.Next().epoch_end);
  EXPECT_EQ(lent, 4);
  EXPECT_EQ(session->facts().batches_copied, 16u);
  EXPECT_EQ(session->facts().slots_lent, 4u);
}

// What a client does that fetches `ahead` while its loop variable holds the batch before.
uint64_t CopiesOfAPlainLoop(Session& session, Front& front, uint64_t batches, uint32_t ahead) {
  EXPECT_TRUE(session.Start(0, 0, 1, false).ok());
  EXPECT_TRUE(session.Want(ahead).ok());
  std::optional<Delivery> held;
  for (uint64_t step = 0; step < batches; ++step) {
    Delivery current = front.Next();
    EXPECT_TRUE(session.Want(1).ok());
    if (held.has_value()) {
      EXPECT_TRUE(session.Release(std::vector<uint32_t>{held->slot}).ok());
    }
    held = std::move(current);
  }
  return session.facts().batches_copied;
}

TEST_F(DeliveryTest, APlainLoopCopiesNothingWithFiveSlotsEvenTwoAhead) {
  Front front;
  auto session = Open(JobOf(2), std::make_shared<FakeDataset>(200), front);
  ASSERT_EQ(session->slot_count(), 5u);
  EXPECT_EQ(CopiesOfAPlainLoop(*session, front, 100, 2), 0u);
}

TEST_F(DeliveryTest, APlainLoopCopiesNothingWithFourSlots) {
  plan::Job job = JobOf(2);
  job.prefetch_factor = 1;
  Front front;
  auto session = Open(job, std::make_shared<FakeDataset>(200), front);
  ASSERT_EQ(session->slot_count(), 4u);
  EXPECT_EQ(CopiesOfAPlainLoop(*session, front, 100, 1), 0u);
}

TEST_F(DeliveryTest, OneSlotIsAlwaysCopiedAndEnough) {
  Budget small{
      {.name = "slot bytes", .total = 4096, .unit = "bytes", .config_field = "limits.slot_bytes"}};
  auto tight = Engine::Create({.slot_bytes = &small});
  Front front;
  auto session = *tight->Open(JobOf(4), std::make_shared<FakeDataset>(12), {}, false, &front);
  ASSERT_EQ(session->slot_count(), 1u);
  ASSERT_TRUE(session->Start(0, 0, 1, true).ok());
  ASSERT_TRUE(session->Want(4).ok());
  for (uint64_t step = 0; step < 3; ++step) {
    const Delivery delivery = front.Next();
    EXPECT_EQ(delivery.handling, Handling::kCopy);
    EXPECT_EQ(IndicesOf(*session, delivery), PlannedIndices(JobOf(4), 12, 0, step));
    Release(*session, delivery);
  }
  EXPECT_TRUE(front.Next().epoch_end);
}

TEST_F(DeliveryTest, InlineDeliveryLendsTheSlotUntilTheFrontHasSentIt) {
  Front front;
  auto session = Open(JobOf(4), std::make_shared<FakeDataset>(40), front, true);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(11).ok());
  for (int step = 0; step < 5; ++step) EXPECT_EQ(front.Next().handling, Handling::kInline);
  EXPECT_TRUE(front.Quiet());
  EXPECT_EQ(session->facts().slots_lent, 5u);
  EXPECT_TRUE(session->Release(std::vector<uint32_t>{0, 1, 2, 3, 4}).ok());
  EXPECT_EQ(front.Next().step, 5u);
  EXPECT_EQ(session->Close(), nullptr);
}

TEST_F(DeliveryTest, ReleaseOfASlotThatIsNotLentIsRefused) {
  Front front;
  auto session = Open(JobOf(4), std::make_shared<FakeDataset>(40), front);
  EXPECT_EQ(session->Release(std::vector<uint32_t>{0}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session->Release(std::vector<uint32_t>{77}).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  const Delivery delivery = front.Next();
  const Status twice = session->Release(std::vector<uint32_t>{delivery.slot, delivery.slot});
  EXPECT_EQ(twice.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(twice.message()), HasSubstr("is not lent"));
}

TEST_F(DeliveryTest, OpenTakesAndEndGivesBackEveryGrant) {
  Front front;
  auto session = Open(JobOf(4), std::make_shared<FakeDataset>(40), front);
  EXPECT_EQ(sessions.used_by(kUid), 1u);
  EXPECT_EQ(descriptors.used_by(kUid), 1u);
  EXPECT_EQ(slot_bytes.used_by(kUid), 5 * session->layout().slot_bytes);
  session.reset();
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld() && engine->ListSessions().empty(); }));
}

TEST_F(DeliveryTest, FewerSlotsAreGivenWhereTheBudgetHasNoMore) {
  Budget small{{.name = "slot bytes",
                .total = 3 * 4096 + 100,
                .unit = "bytes",
                .config_field = "limits.slot_bytes"}};
  auto tight = Engine::Create({.slot_bytes = &small});
  Front front;
  auto session = *tight->Open(JobOf(4), std::make_shared<FakeDataset>(40), {}, false, &front);
  EXPECT_EQ(session->slot_count(), 3u);
  Front other;
  auto refused = tight->Open(JobOf(4), std::make_shared<FakeDataset>(40), {}, false, &other);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("one batch of 4 x 4 x 4 x 3 uint8 needs 4096 bytes: slot bytes: asked for "
                        "4096 bytes, 100 bytes "
                        "left of 12388 bytes"));
}

TEST_F(DeliveryTest, AHugeBatchIsRefusedWithItsSizeAndHoldsNothing) {
  plan::Job job = JobOf(65536);
  job.prefetch_factor = 1024;
  job.recipe.steps = {step::Resize{.size = Size{13377, 13377}, .max_size = {}}, step::ToTensor{}};
  Front front;
  auto refused = engine->Open(job, std::make_shared<FakeDataset>(10), {.uid = kUid}, false, &front);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("one batch of 65536 x 3 x 13377 x 13377 float32"));
  EXPECT_TRUE(NothingIsHeld());
}

TEST_F(DeliveryTest, ARecipeWithoutOneSizeIsRefused) {
  plan::Job job = JobOf(4);
  job.recipe.steps = {step::Resize{.size = 256, .max_size = {}}};
  Front front;
  auto refused = engine->Open(job, std::make_shared<FakeDataset>(10), {}, false, &front);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("the size of a sample depends on the image"));
}

TEST_F(DeliveryTest, AnEmptyDatasetIsRefused) {
  Front front;
  for (const auto kind : {plan::OrderKind::kSequential, plan::OrderKind::kExplicit}) {
    auto refused =
        engine->Open(JobOf(4, kind), std::make_shared<FakeDataset>(0), {}, false, &front);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(DeliveryTest, FactsTellOwnerCursorAndSlots) {
  Front front;
  auto session = Open(JobOf(4), std::make_shared<FakeDataset>(40, "/data/x"), front);
  ASSERT_TRUE(session->Start(3, 2, 1, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  front.Next();
  const std::vector<SessionFacts> all = engine->ListSessions();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].name, session->name());
  EXPECT_EQ(all[0].owner.uid, kUid);
  EXPECT_EQ(all[0].dataset, "/data/x");
  EXPECT_EQ(all[0].delivery, "mapped");
  EXPECT_EQ(all[0].epoch, 3u);
  EXPECT_EQ(all[0].next_batch, 3u);
  EXPECT_EQ(all[0].num_batches, 10u);
  EXPECT_EQ(all[0].slots, 5u);
  EXPECT_EQ(all[0].slots_lent, 1u);
  EXPECT_EQ(all[0].samples_delivered, 4u);
  EXPECT_FALSE(all[0].closed);
}

TEST_F(DeliveryTest, SessionsWithoutADescriptorWaitAndThenGoOn) {
  Budget few{{.name = "descriptors", .total = 3, .unit = "", .config_field = "limits.descriptors"}};
  auto tight = Engine::Create({.reader_threads = 4, .descriptors = &few});
  auto dataset = std::make_shared<FakeDataset>(60);
  dataset->Slow(std::chrono::microseconds(500));
  Front front;
  auto session = *tight->Open(JobOf(4), dataset, {}, false, &front);
  {
    std::vector<Grant> connections;
    connections.push_back(*few.Take(0, 2));
    ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
    ASSERT_TRUE(session->Want(16).ok());
    for (int i = 0; i < 3; ++i) Release(*session, front.Next());
    EXPECT_EQ(dataset->most_at_once(), 1);
  }
  for (int i = 3; i < 15; ++i) Release(*session, front.Next());
  EXPECT_TRUE(front.Next().epoch_end);
  session.reset();
  EXPECT_TRUE(Eventually([&] { return few.used() == 0; }));
}

TEST_F(DeliveryTest, ReadsInFlightAreBounded) {
  Restart({.fleet_threads = 1, .reader_threads = 8, .max_reads_in_flight = 3});
  auto dataset = std::make_shared<FakeDataset>(200);
  dataset->Slow(std::chrono::microseconds(300));
  Front front1, front2;
  auto session1 = Open(JobOf(8), dataset, front1);
  auto session2 = Open(JobOf(8), dataset, front2);
  for (Session* session : {session1.get(), session2.get()}) {
    ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
    ASSERT_TRUE(session->Want(10).ok());
  }
  for (int i = 0; i < 10; ++i) {
    Release(*session1, front1.Next());
    Release(*session2, front2.Next());
  }
  EXPECT_LE(dataset->most_at_once(), 3);
}

}  // namespace
}  // namespace loaderd::engine
