// SPDX-License-Identifier: Apache-2.0
// What the engine's tests stand in for: the front that takes deliveries, and the daemon that owns
// the budgets.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/budget.h"
#include "server/base/mutex.h"
#include "server/engine/engine.h"
#include "tests/support/fake_dataset.h"

namespace loaderd::engine {

// Keeps what was delivered and checks that events come one at a time, and none after Close.
class Front : public SessionEvents {
 public:
  void OnDelivery(Delivery delivery) override {
    EXPECT_FALSE(inside_.exchange(true)) << "two events at once";
    EXPECT_FALSE(closed_) << "an event after Close";
    if (hook) hook(delivery);
    {
      MutexLock lock(mutex_);
      deliveries_.push_back(std::move(delivery));
      arrived_.NotifyAll();
    }
    inside_ = false;
  }

  // The next delivery; fails the test when none comes within ten seconds.
  Delivery Next() {
    std::optional<Delivery> next = NextWithin(std::chrono::seconds(10));
    EXPECT_TRUE(next.has_value()) << "nothing was delivered";
    return next.has_value() ? *std::move(next) : Delivery{};
  }
  std::optional<Delivery> NextWithin(std::chrono::milliseconds limit) {
    MutexLock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (deliveries_.empty()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds(0)) return std::nullopt;
      arrived_.WaitFor(mutex_, left);
    }
    Delivery next = std::move(deliveries_.front());
    deliveries_.pop_front();
    return next;
  }
  bool Quiet(std::chrono::milliseconds limit = std::chrono::milliseconds(50)) {
    return !NextWithin(limit).has_value();
  }
  void MarkClosed() { closed_ = true; }

  std::function<void(const Delivery&)> hook;  // set before Start; runs within each event

 private:
  std::atomic<bool> inside_ = false;
  std::atomic<bool> closed_ = false;
  Mutex mutex_;
  CondVar arrived_;
  std::deque<Delivery> deliveries_;
};

inline bool Eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

struct Row {
  int64_t label = 0;
  int64_t index = 0;
  bool pad = false;
  std::vector<uint8_t> pixels;
};

inline std::vector<Row> RowsOf(const Session& session, const Delivery& delivery) {
  const BatchLayout& layout = session.layout();
  const std::span<const uint8_t> slot = session.SlotBytes(delivery.slot);
  std::vector<Row> rows(delivery.count);
  for (uint32_t i = 0; i < delivery.count; ++i) {
    const auto at = [&](size_t field) {
      return slot.data() + layout.fields[field].offset + i * layout.fields[field].RowBytes();
    };
    rows[i].pixels.assign(at(0), at(0) + layout.fields[0].RowBytes());
    std::memcpy(&rows[i].label, at(1), sizeof(int64_t));
    std::memcpy(&rows[i].index, at(2), sizeof(int64_t));
    rows[i].pad = *at(3) != 0;
  }
  return rows;
}

// The batch's indices, after a check that each row's pixels and label are those of its index.
inline std::vector<int64_t> IndicesOf(const Session& session, const Delivery& delivery) {
  std::vector<int64_t> indices;
  for (const Row& row : RowsOf(session, delivery)) {
    const auto index = static_cast<uint64_t>(row.index);
    EXPECT_EQ(row.label, FakeDataset::Label(index));
    for (const uint8_t pixel : row.pixels) {
      if (pixel != FakeDataset::Grey(index)) {
        ADD_FAILURE() << "step " << delivery.step << ": pixels of another sample than " << index;
        break;
      }
    }
    indices.push_back(row.index);
  }
  return indices;
}

class EngineFixture : public ::testing::Test {
 protected:
  static constexpr uint32_t kUid = 1000;

  EngineFixture() { Restart({.fleet_threads = 2, .reader_threads = 4}); }

  void Restart(Engine::Options options) {
    engine.reset();
    options.sessions = &sessions;
    options.slot_bytes = &slot_bytes;
    options.descriptors = &descriptors;
    engine = Engine::Create(options);
  }

  static plan::Job JobOf(uint32_t batch_size, plan::OrderKind kind = plan::OrderKind::kSequential) {
    plan::Job job;
    job.batch_size = batch_size;
    job.order.kind = kind;
    job.recipe.steps = {step::RandomResizedCrop{.size = {4, 4}}};
    return job;
  }

  std::unique_ptr<Session> Open(const plan::Job& job, std::shared_ptr<FakeDataset> dataset,
                                SessionEvents& front, bool inline_delivery = false) {
    auto session = engine->Open(job, std::move(dataset), {.uid = kUid, .pid = 1, .client = "test"},
                                inline_delivery, &front);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  static void Release(Session& session, const Delivery& delivery) {
    if (!delivery.epoch_end && delivery.handling != Handling::kNone) {
      EXPECT_TRUE(session.Release(std::vector<uint32_t>{delivery.slot}).ok());
    }
  }

  bool NothingIsHeld() {
    return sessions.used() == 0 && slot_bytes.used() == 0 && descriptors.used() == 0;
  }

  Budget sessions{{.name = "sessions", .total = 64, .unit = "", .config_field = "limits.sessions"}};
  Budget slot_bytes{{.name = "slot bytes",
                     .total = 1 << 30,
                     .unit = "bytes",
                     .config_field = "limits.slot_bytes"}};
  Budget descriptors{
      {.name = "descriptors", .total = 256, .unit = "", .config_field = "limits.descriptors"}};
  std::unique_ptr<Engine> engine;
};

}  // namespace loaderd::engine
