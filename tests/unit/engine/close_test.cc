// SPDX-License-Identifier: Apache-2.0
// Ends of sessions: what stops at once, what goes back when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "server/engine/engine.h"
#include "tests/unit/engine/front.h"

namespace loaderd::engine {
namespace {

class CloseTest : public EngineFixture {
 protected:
  std::shared_ptr<FakeDataset> dataset = std::make_shared<FakeDataset>(400);
  Front front;
};

TEST_F(CloseTest, NoEventComesAfterClose) {
  auto session = Open(JobOf(4), dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  front.Next();
  session->Close();
  front.MarkClosed();
  EXPECT_TRUE(session->Want(5).ok());
  EXPECT_TRUE(front.Quiet());
}

TEST_F(CloseTest, ASecondCloseGivesNoLease) {
  auto session = Open(JobOf(4), dataset, front);
  EXPECT_NE(session->Close(), nullptr);
  EXPECT_EQ(session->Close(), nullptr);
}

TEST_F(CloseTest, MemoryStaysChargedAndListedWhileTheLeaseIsHeld) {
  auto session = Open(JobOf(4), dataset, front);
  const uint64_t charged = slot_bytes.used();
  EXPECT_GT(charged, 0u);
  std::unique_ptr<SegmentLease> lease = session->Close();
  session.reset();
  // The thread that takes the segment's pages may be in the middle of a slot.
  EXPECT_TRUE(Eventually([&] { return sessions.used() == 0; }));
  EXPECT_EQ(slot_bytes.used(), charged);
  EXPECT_EQ(descriptors.used(), 1u);
  ASSERT_EQ(engine->ListSessions().size(), 1u);
  EXPECT_TRUE(engine->ListSessions()[0].closed);
  lease.reset();
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld() && engine->ListSessions().empty(); }));
}

TEST_F(CloseTest, TheLeaseAloneDecidesEvenIfTheSessionObjectLivesOn) {
  auto session = Open(JobOf(4), dataset, front);
  session->Close().reset();
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld(); }));
  EXPECT_TRUE(session->facts().closed);
}

TEST_F(CloseTest, InlineBytesStayReadableUntilTheSessionIsDestroyed) {
  auto session = Open(JobOf(4), dataset, front, true);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  const Delivery delivery = front.Next();
  const auto slot = session->SlotBytes(delivery.slot);
  EXPECT_EQ(session->Close(), nullptr);
  EXPECT_EQ(slot[0], FakeDataset::Grey(0));
  EXPECT_GT(slot_bytes.used(), 0u);
  session.reset();
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld(); }));
}

TEST_F(CloseTest, AClientThatKeepsItsMappingKeepsZerosNotMemory) {
  auto session = Open(JobOf(4), dataset, front);
  const uint64_t bytes = session->slot_count() * session->layout().slot_bytes;
  auto* client = static_cast<uint8_t*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session->segment_fd(), 0));
  ASSERT_NE(client, MAP_FAILED);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  const Delivery delivery = front.Next();
  uint8_t* const pixel = client + delivery.slot * session->layout().slot_bytes;
  EXPECT_EQ(*pixel, FakeDataset::Grey(0));
  auto lease = session->Close();
  session.reset();
  EXPECT_EQ(*pixel, FakeDataset::Grey(0));
  lease.reset();
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld(); }));
  EXPECT_EQ(*pixel, 0);
  ::munmap(client, bytes);
}

TEST_F(CloseTest, WhenTheDaemonLeavesHeldBatchesStayAsTheyAre) {
  auto session = Open(JobOf(4), dataset, front);
  const uint64_t bytes = session->slot_count() * session->layout().slot_bytes;
  auto* client = static_cast<uint8_t*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session->segment_fd(), 0));
  ASSERT_NE(client, MAP_FAILED);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  const Delivery delivery = front.Next();
  const uint8_t* const pixel = client + delivery.slot * session->layout().slot_bytes;
  engine->KeepPages();
  session->Close().reset();
  session.reset();
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld(); }));
  EXPECT_EQ(*pixel, FakeDataset::Grey(0));
  ::munmap(client, bytes);
}

TEST_F(CloseTest, ClosingWithStuckReadsReturnsAtOnceAndChargesUntilTheyEnd) {
  dataset->BlockAll();
  auto session = Open(JobOf(4), dataset, front);
  const uint64_t charged = slot_bytes.used();
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  ASSERT_TRUE(dataset->WaitForBlocked(2));
  const auto begin = std::chrono::steady_clock::now();
  session->Close().reset();
  session.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(slot_bytes.used(), charged);
  EXPECT_EQ(sessions.used(), 1u);
  EXPECT_EQ(engine->ListSessions().size(), 1u);
  dataset->Unblock();
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld(); }));
}

TEST_F(CloseTest, StuckStorageOfOneSessionLeavesReadersToTheOthers) {
  dataset->BlockAll();
  auto stuck = Open(JobOf(4), dataset, front);
  ASSERT_TRUE(stuck->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(stuck->Want(1).ok());
  ASSERT_TRUE(dataset->WaitForBlocked(2));
  Front other;
  auto session = Open(JobOf(4), std::make_shared<FakeDataset>(100), other);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(26).ok());
  for (int i = 0; i < 25; ++i) Release(*session, other.Next());
  EXPECT_TRUE(other.Next().epoch_end);
  EXPECT_EQ(dataset->reads(), 2u) << "half of four readers, no more, may be stuck in one session";
  EXPECT_TRUE(engine->Responds());
  dataset->Unblock();
}

TEST_F(CloseTest, TheFrontMayCloseFromWithinAnEvent) {
  std::unique_ptr<Session> session = Open(JobOf(2), dataset, front);
  std::unique_ptr<SegmentLease> lease;
  front.hook = [&](const Delivery& delivery) {
    if (delivery.step == 3) lease = session->Close();
  };
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(100).ok());
  for (uint64_t step = 0; step <= 3; ++step) EXPECT_EQ(front.Next().step, step);
  EXPECT_TRUE(front.Quiet());
  session->Close();
  EXPECT_NE(lease, nullptr);
}

TEST_F(CloseTest, TheFrontMayDestroyTheSessionFromWithinAnEvent) {
  std::unique_ptr<Session> session = Open(JobOf(2), dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(Eventually([&] { return session->facts().slots_ready == 5; }));
  front.hook = [&](const Delivery&) { session.reset(); };
  Session* const raw = session.get();
  ASSERT_TRUE(raw->Want(1).ok());
  EXPECT_EQ(front.Next().step, 0u);
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld(); }));
}

TEST_F(CloseTest, TheFrontMayCallTheSessionFromWithinAnEvent) {
  auto session = Open(JobOf(2), dataset, front);
  front.hook = [&](const Delivery& delivery) {
    Release(*session, delivery);
    EXPECT_TRUE(session->Want(1).ok());
  };
  ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(session->Want(1).ok());
  for (uint64_t step = 0; step < 200; ++step) EXPECT_EQ(front.Next().step, step);
  EXPECT_TRUE(front.Next().epoch_end);
}

TEST_F(CloseTest, ClosingRacesDeliveries) {
  for (int round = 0; round < 200; ++round) {
    Front racing;
    auto session = Open(JobOf(2), dataset, racing);
    racing.hook = [&](const Delivery& delivery) {
      Release(*session, delivery);
      (void)session->Want(1);
    };
    ASSERT_TRUE(session->Start(0, 0, 1, true).ok());
    ASSERT_TRUE(session->Want(8).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(round * 17 % 700));
    std::unique_ptr<SegmentLease> lease = session->Close();
    racing.MarkClosed();
    session.reset();
  }
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld(); }));
}

TEST_F(CloseTest, CallsOfManyThreadsRaceOneClose) {
  for (int round = 0; round < 50; ++round) {
    Front racing;
    auto session = Open(JobOf(2), dataset, racing);
    std::vector<std::thread> threads;
    threads.emplace_back([&] { (void)session->Start(0, 0, 1, true); });
    threads.emplace_back([&] { (void)session->Want(100); });
    threads.emplace_back([&] { (void)session->Start(1, 0, 2, true); });
    threads.emplace_back([&] { (void)session->facts(); });
    threads.emplace_back([&] { (void)engine->ListSessions(); });
    threads.emplace_back([&] { session->Close(); });
    threads.emplace_back([&] { session->Close(); });
    for (std::thread& thread : threads) thread.join();
    racing.MarkClosed();
  }
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld(); }));
}

TEST_F(CloseTest, ALeaseMayOutliveTheEngine) {
  auto session = Open(JobOf(2), dataset, front);
  ASSERT_TRUE(session->Start(0, 0, 1, true).ok());
  auto lease = session->Close();
  session.reset();
  engine.reset();
  EXPECT_GT(slot_bytes.used(), 0u);
  lease.reset();
  EXPECT_TRUE(Eventually([&] { return NothingIsHeld(); }));
}

}  // namespace
}  // namespace loaderd::engine
