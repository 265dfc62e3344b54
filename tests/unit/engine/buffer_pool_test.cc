// SPDX-License-Identifier: Apache-2.0
#include "server/engine/buffer_pool.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/fake_clock.h"

namespace loaderd::engine {
namespace {

TEST(BufferPoolTest, GivesNoMoreThanItHas) {
  BufferPool pool(2);
  auto first = pool.Take();
  EXPECT_FALSE(pool.empty());
  auto second = pool.Take();
  EXPECT_TRUE(pool.empty());
  pool.Return(std::move(first), {});
  EXPECT_FALSE(pool.empty());
}

TEST(BufferPoolTest, TheLastBackIsTheFirstOut) {
  BufferPool pool(2);
  auto first = pool.Take();
  auto second = pool.Take();
  const ByteBuffer* const last = second.get();
  pool.Return(std::move(first), {});
  pool.Return(std::move(second), {});
  EXPECT_EQ(pool.Take().get(), last);
}

TEST(BufferPoolTest, ALargeBufferGivesItsMemoryBackOnceIdleForLong) {
  FakeClock clock;
  BufferPool pool(2);
  auto large = pool.Take();
  auto small = pool.Take();
  large->Resize(BufferPool::kLargeBytes + 1);
  small->Resize(1000);
  pool.Return(std::move(large), clock.Now());
  pool.Return(std::move(small), clock.Now());
  EXPECT_TRUE(pool.holds_large());
  clock.Advance(std::chrono::milliseconds(999));
  EXPECT_TRUE(pool.TakeStale(clock.Now()).empty());
  clock.Advance(std::chrono::milliseconds(1));
  EXPECT_EQ(pool.TakeStale(clock.Now()).size(), 1u);
  EXPECT_FALSE(pool.holds_large());
  EXPECT_EQ(pool.Take()->capacity(), 1000u);
  EXPECT_EQ(pool.Take()->capacity(), 0u);
  EXPECT_TRUE(pool.empty());
}

}  // namespace
}  // namespace loaderd::engine
