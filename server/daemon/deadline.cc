// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/deadline.h"

#include <utility>

#include "server/base/clock.h"

namespace loaderd::daemon {

Deadline::Deadline(std::chrono::milliseconds limit, std::function<void()> passed)
    : passed_(std::move(passed)), thread_([this, limit] { Wait(limit); }) {}

Deadline::~Deadline() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Deadline::Wait(std::chrono::milliseconds limit) {
  const Clock::Time end = Clock::Real().Now() + limit;
  {
    MutexLock lock(mutex_);
    while (!ended_) {
      const auto left = end - Clock::Real().Now();
      if (left <= left.zero()) break;
      changed_.WaitFor(mutex_, left);
    }
    if (ended_) return;
  }
  passed_();
}

}  // namespace loaderd::daemon
