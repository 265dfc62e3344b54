// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <chrono>

namespace loaderd::engine {

// CPU time that the calling thread has used since the meter was made. A system call a look: for
// whole runs, not for samples.
class CpuMeter {
 public:
  CpuMeter() : begun_(Now()) {}
  std::chrono::nanoseconds used() const { return Now() - begun_; }

 private:
  static std::chrono::nanoseconds Now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  const std::chrono::nanoseconds begun_;
};

}  // namespace loaderd::engine
