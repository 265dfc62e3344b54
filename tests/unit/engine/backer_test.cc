// SPDX-License-Identifier: Apache-2.0
#include "server/engine/backer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/engine/front.h"

namespace loaderd::engine {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class Slots : public Backing {
 public:
  Slots(int slots, int id, std::vector<int>& order) : left_(slots), id_(id), order_(order) {}
  bool BackNext() override {
    order_.push_back(id_);  // by one thread only
    if (--left_ > 0) return true;
    ended = true;
    return false;
  }
  std::atomic<bool> ended = false;

 private:
  int left_;
  const int id_;
  std::vector<int>& order_;
};

TEST(BackerTest, SessionsTakeTurnsSlotBySlot) {
  std::vector<int> order;
  std::atomic<bool> begin = false;
  class Gate : public Backing {
   public:
    explicit Gate(std::atomic<bool>& begin) : begin_(begin) {}
    bool BackNext() override {
      while (!begin_) std::this_thread::yield();
      return false;
    }
    std::atomic<bool>& begin_;
  };
  auto first = std::make_shared<Slots>(3, 1, order);
  auto second = std::make_shared<Slots>(2, 2, order);
  {
    Backer backer(0);
    // Until both are queued.
    backer.Back(std::make_shared<Gate>(begin));
    backer.Back(first);
    backer.Back(second);
    begin = true;
    EXPECT_TRUE(Eventually([&] { return first->ended && second->ended; }));
    EXPECT_FALSE(backer.TakePrefaulted().ok());
  }
  EXPECT_EQ(std::ranges::count(order, 1), 3);
  EXPECT_EQ(std::ranges::count(order, 2), 2);
  EXPECT_EQ(order.back(), 1);  // the one with more slots
}

TEST(BackerTest, MakesAnotherWhenThePrefaultedMemoryIsTaken) {
  Backer backer(2 * kMiB);
  std::vector<UniqueFd> taken;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Eventually([&] {
      UniqueFd fd = backer.TakePrefaulted();
      if (!fd.ok()) return false;
      taken.push_back(std::move(fd));
      return true;
    }));
  }
  for (const UniqueFd& fd : taken) {
    struct stat st {};
    ASSERT_EQ(::fstat(fd.get(), &st), 0);
    EXPECT_EQ(static_cast<uint64_t>(st.st_blocks) * 512, 2 * kMiB);
  }
}

TEST(BackerTest, EndsWhileWorkIsLeft) {
  class Endless : public Backing {
   public:
    bool BackNext() override { return true; }
  };
  Backer backer(kMiB);
  backer.Back(std::make_shared<Endless>());
}

}  // namespace
}  // namespace loaderd::engine
