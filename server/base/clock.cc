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

}  // namespace loaderd
