// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace loaderd {

// The only source of time outside tests' fakes. Thread-safe.
class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual Time Now() const = 0;
  static const Clock& Real();  // lives for ever
};

}  // namespace loaderd
