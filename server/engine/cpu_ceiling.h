// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

#include "server/base/clock.h"

namespace loaderd::engine {

// Holds the CPU time of many threads to that of `cpus` CPUs: a token bucket that may be overdrawn,
// since what work costs is known only when it has been done. Not thread-safe.
class CpuCeiling {
 public:
  static constexpr std::chrono::milliseconds kBurst{20};  // so much at once after a pause

  explicit CpuCeiling(double cpus) : cpus_(cpus) {}  // 0: no ceiling

  void Charge(std::chrono::nanoseconds cpu, Clock::Time now) {
    if (cpus_ <= 0) return;
    paid_until_ = std::max(paid_until_, now - kBurst) +
                  std::chrono::nanoseconds(static_cast<int64_t>(double(cpu.count()) / cpus_));
  }
  // How long nothing more may begin; zero: it may.
  std::chrono::nanoseconds Pause(Clock::Time now) const {
    return std::max(paid_until_ - now, Clock::Time::duration(0));
  }

 private:
  const double cpus_;
  Clock::Time paid_until_{};
};

}  // namespace loaderd::engine
