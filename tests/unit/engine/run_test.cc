// SPDX-License-Identifier: Apache-2.0
#include "server/engine/run.h"

#include <gtest/gtest.h>

#include <utility>

#include "server/engine/fleet.h"
#include "tests/support/fake_clock.h"

namespace loaderd::engine {
namespace {

TEST(RunTest, APieceThatIsTakenOutKeepsTheOthersWithTheirBytes) {
  engine::Run run;
  run.count = 3;
  for (size_t i = 0; i < run.count; ++i) {
    run.pieces[i].index = i;
    run.buffers[i].Resize(i + 1);
  }
  run.Remove(0);
  ASSERT_EQ(run.count, 2u);
  for (size_t i = 0; i < run.count; ++i) {
    EXPECT_NE(run.pieces[i].index, 0u);
    EXPECT_EQ(run.buffers[i].bytes().size(), run.pieces[i].index + 1);
  }
}

TEST(RunQueueTest, TheFirstInIsTheFirstOut) {
  RunQueue queue;
  const engine::Run* runs[3];
  for (int round = 0; round < 2; ++round) {
    for (const engine::Run*& run : runs) {
      auto made = std::make_unique<engine::Run>();
      run = made.get();
      queue.Push(std::move(made));
    }
    for (const engine::Run* run : runs) {
      ASSERT_FALSE(queue.empty());
      const std::unique_ptr<engine::Run> popped = queue.Pop();
      EXPECT_EQ(popped.get(), run);
      EXPECT_EQ(popped->next, nullptr);
    }
    EXPECT_TRUE(queue.empty());
  }
}

TEST(RunQueueTest, TheLeastTagGoesFirst) {
  RunQueue queue;
  for (const double tag : {2.0, 1.0, 3.0, 1.0, 0.5}) {
    auto made = std::make_unique<engine::Run>();
    made->turn.tag = tag;
    queue.Push(std::move(made));
  }
  for (const double tag : {0.5, 1.0, 1.0, 2.0, 3.0}) EXPECT_EQ(queue.Pop()->turn.tag, tag);
  EXPECT_TRUE(queue.empty());
}

TEST(RunPoolTest, GivesNoMoreThanItHas) {
  RunPool pool(2);
  auto first = pool.Take();
  EXPECT_FALSE(pool.empty());
  auto second = pool.Take();
  EXPECT_TRUE(pool.empty());
  pool.Return(std::move(first), {});
  EXPECT_FALSE(pool.empty());
}

TEST(RunPoolTest, TheLastBackIsTheFirstOut) {
  RunPool pool(2);
  auto first = pool.Take();
  auto second = pool.Take();
  const engine::Run* const last = second.get();
  pool.Return(std::move(first), {});
  pool.Return(std::move(second), {});
  EXPECT_EQ(pool.Take().get(), last);
}

TEST(RunPoolTest, ALargeRunGivesItsMemoryBackOnceIdleForLong) {
  FakeClock clock;
  RunPool pool(2);
  auto large = pool.Take();
  auto small = pool.Take();
  large->buffers[0].Resize(RunPool::kLargeBytes / 2);
  large->buffers[1].Resize(RunPool::kLargeBytes / 2 + 1);
  small->buffers[0].Resize(1000);
  pool.Return(std::move(large), clock.Now());
  pool.Return(std::move(small), clock.Now());
  EXPECT_TRUE(pool.holds_large());
  clock.Advance(std::chrono::milliseconds(999));
  EXPECT_EQ(pool.TakeStale(clock.Now()), nullptr);
  clock.Advance(std::chrono::milliseconds(1));
  const std::unique_ptr<engine::Run> stale = pool.TakeStale(clock.Now());
  ASSERT_NE(stale, nullptr);
  EXPECT_EQ(stale->next, nullptr);
  EXPECT_FALSE(pool.holds_large());
  EXPECT_EQ(pool.Take()->capacity(), 1000u);
  EXPECT_EQ(pool.Take()->capacity(), 0u);
  EXPECT_TRUE(pool.empty());
}

}  // namespace
}  // namespace loaderd::engine
