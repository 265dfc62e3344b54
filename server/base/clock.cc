// SPDX-License-Identifier: Apache-2.0
#include "server/base/clock.h"

namespace loaderd {
namespace {
class SteadyClock final : public Clock {
  Time Now() const override { return std::chrono::steady_clock::now(); }
};
}  // namespace

const Clock& Clock::Real() {
  static const SteadyClock clock;
  return clock;
}

int64_t WallNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace loaderd
