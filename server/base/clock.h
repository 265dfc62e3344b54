// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace loaderd {

// The only source of time outside tests' fakes. Thread-safe.
class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual Time Now() const = 0;
  static const Clock& Real();  // lives for ever
};

// Nanoseconds since 1970, as file systems stamp their files. Jumps when the clock is set.
int64_t WallNanos();

}  // namespace loaderd
