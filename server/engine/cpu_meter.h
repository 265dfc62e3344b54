// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>

namespace loaderd::engine {

// The CPU time that one thread spends between Begin() and End(). The thread's CPU clock costs a
// system call and the machine's does not: so this is time on the machine's clock, times what part
// of it the thread had a core of late. Used by its thread only.
class CpuMeter {
 public:
  CpuMeter() : cpu_(ThreadCpu()) {}

  void Begin() { begun_ = Wall::now(); }
  std::chrono::nanoseconds End() {
    const std::chrono::nanoseconds wall = Wall::now() - begun_;
    busy_ += wall;
    if (busy_ >= kInterval) Calibrate();
    return std::chrono::nanoseconds(
        static_cast<int64_t>(static_cast<double>(wall.count()) * on_core_));
  }

 private:
  using Wall = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kInterval{20};  // of work, from one look to the next

  static std::chrono::nanoseconds ThreadCpu() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  void Calibrate() {
    const std::chrono::nanoseconds cpu = ThreadCpu();
    // The little that it spends between one End() and the next Begin() counts as work.
    on_core_ = std::min(1.0, std::chrono::duration<double>(cpu - cpu_) / busy_);
    cpu_ = cpu;
    busy_ = std::chrono::nanoseconds(0);
  }

  std::chrono::nanoseconds cpu_;  // at the last look
  std::chrono::nanoseconds busy_{0};
  Wall::time_point begun_;
  double on_core_ = 1;
};

}  // namespace loaderd::engine
