// SPDX-License-Identifier: Apache-2.0
// Random interleavings of eight trainers, with every invariant of delivery checked by each.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "server/engine/engine.h"
#include "server/plan/epoch_plan.h"
#include "tests/unit/engine/front.h"

namespace loaderd::engine {
namespace {

constexpr int kRounds = 1000;
constexpr int kTrainers = 8;

class StressTest : public EngineFixture {};

// One trainer: a few epochs at its own pace, holding some batches, at times leaving in the middle.
class Trainer {
 public:
  Trainer(Engine& engine, std::shared_ptr<FakeDataset> dataset, uint64_t seed)
      : random_(seed), dataset_(std::move(dataset)) {
    job_.batch_size = Below(7) + 1;
    job_.order.kind = Below(2) == 0 ? plan::OrderKind::kSequential : plan::OrderKind::kTorchShuffle;
    job_.order.seed = seed;
    job_.prefetch_factor = Below(3) + 1;
    job_.recipe.steps = {step::RandomResizedCrop{.size = {2, 2}}};
    auto session = engine.Open(job_, dataset_, {.uid = 1000}, Below(4) == 0, &front_);
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  void Run() {
    const uint64_t epochs = Below(3) + 1;
    for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
      ++start_;
      const uint64_t first =
          Below(5) == 0 ? Below(static_cast<uint32_t>(session_->num_batches() + 1)) : 0;
      ASSERT_TRUE(session_->Start(epoch, first, start_, Below(2) == 0).ok());
      if (!RunEpoch(epoch, first)) break;
    }
    std::unique_ptr<SegmentLease> lease = session_->Close();
    front_.MarkClosed();
    if (Below(2) == 0) session_.reset();
  }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  // False when it left in the middle.
  bool RunEpoch(uint64_t epoch, uint64_t first) {
    const plan::EpochPlan plan(job_.order, dataset_->size(), job_.batch_size, false, epoch);
    std::vector<plan::PlannedSample> planned;
    EXPECT_TRUE(session_->Want(1 + Below(3)).ok());
    for (uint64_t step = first;;) {
      const Delivery delivery = front_.Next();
      if (::testing::Test::HasFailure()) return false;
      // Of an earlier start, delivered while this one began.
      if (delivery.start != start_) {
        if (!delivery.epoch_end) Give(delivery);
        continue;
      }
      EXPECT_TRUE(session_->Want(1).ok());
      if (delivery.epoch_end) {
        EXPECT_EQ(step, plan.num_batches());
        EXPECT_EQ(delivery.num_batches, step);
        return true;
      }
      EXPECT_EQ(delivery.epoch, epoch);
      EXPECT_EQ(delivery.step, step);
      plan.Batch(step++, planned);
      std::vector<int64_t> expected;
      for (const auto& sample : planned) expected.push_back(static_cast<int64_t>(sample.index));
      EXPECT_EQ(IndicesOf(*session_, delivery), expected);
      Keep(delivery);
      if (Below(60) == 0) return false;
      if (Below(30) == 0) return true;  // the next epoch begins although this one has not ended
    }
  }

  void Keep(const Delivery& delivery) {
    if (delivery.handling == Handling::kLend) {
      held_.push_back(delivery);
    } else {
      Give(delivery);
    }
    while (held_.size() > Below(4)) {
      // Nobody has written into what was held.
      (void)IndicesOf(*session_, held_.front());
      Give(held_.front());
      held_.pop_front();
    }
  }
  void Give(const Delivery& delivery) {
    EXPECT_TRUE(session_->Release(std::vector<uint32_t>{delivery.slot}).ok());
  }

  std::mt19937_64 random_;
  std::shared_ptr<FakeDataset> dataset_;
  plan::Job job_;
  Front front_;
  std::unique_ptr<Session> session_;
  std::deque<Delivery> held_;
  uint64_t start_ = 0;
};

TEST_F(StressTest, EveryTrainerGetsItsBatchesInOrderWhateverTheOthersDo) {
  for (uint64_t round = 0; round < kRounds / kTrainers && !HasFailure(); ++round) {
    std::mt19937_64 random(round);
    Restart({.fleet_threads = static_cast<int>(1 + random() % 3),
             .reader_threads = static_cast<int>(1 + random() % 4),
             .max_reads_in_flight = static_cast<uint32_t>(1 + random() % 6)});
    std::vector<std::unique_ptr<Trainer>> trainers;
    for (int i = 0; i < kTrainers; ++i) {
      auto dataset = std::make_shared<FakeDataset>(1 + random() % 60);
      if (random() % 4 == 0) dataset->Slow(std::chrono::microseconds(random() % 100));
      trainers.push_back(std::make_unique<Trainer>(*engine, dataset, random()));
    }
    std::vector<std::thread> threads;
    for (auto& trainer : trainers) threads.emplace_back([&] { trainer->Run(); });
    for (std::thread& thread : threads) thread.join();
    trainers.clear();
    EXPECT_TRUE(Eventually([&] { return NothingIsHeld(); })) << "round " << round;
  }
}

TEST_F(StressTest, TrainersOfUnequalSpeedDoNotHoldEachOtherUp) {
  auto dataset = std::make_shared<FakeDataset>(200);
  Front slow_front, fast_front;
  auto slow = Open(JobOf(4), dataset, slow_front);
  auto fast = Open(JobOf(4), dataset, fast_front);
  ASSERT_TRUE(slow->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(fast->Start(0, 0, 1, false).ok());
  ASSERT_TRUE(slow->Want(2).ok());
  ASSERT_TRUE(fast->Want(51).ok());
  for (int i = 0; i < 50; ++i) Release(*fast, fast_front.Next());
  EXPECT_TRUE(fast_front.Next().epoch_end);
  EXPECT_EQ(slow_front.Next().step, 0u);
  EXPECT_EQ(slow_front.Next().step, 1u);
  EXPECT_EQ(slow->facts().slots_lent, 2u);
}

}  // namespace
}  // namespace loaderd::engine
