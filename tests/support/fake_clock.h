// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>

#include "server/base/clock.h"

namespace loaderd {

// Stands still until it is told to go on. Thread-safe.
class FakeClock : public Clock {
 public:
  Time Now() const override { return Time(std::chrono::nanoseconds(now_.load())); }
  void Advance(std::chrono::nanoseconds by) { now_ += by.count(); }

 private:
  std::atomic<int64_t> now_ = 0;
};

}  // namespace loaderd
