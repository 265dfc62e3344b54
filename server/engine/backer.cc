// SPDX-License-Identifier: Apache-2.0
#include "server/engine/backer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/shm/segment.h"

namespace loaderd::engine {

Backer::Backer(uint64_t prefaulted_bytes)
    : prefaulted_bytes_(prefaulted_bytes),
      prefault_(prefaulted_bytes > 0),
      thread_([this] { Run(); }) {}

Backer::~Backer() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    work_.NotifyAll();
  }
  thread_.join();
}

void Backer::Back(std::shared_ptr<Backing> backing) {
  MutexLock lock(mutex_);
  queue_.push_back(std::move(backing));
  work_.NotifyAll();
}

UniqueFd Backer::TakePrefaulted() {
  MutexLock lock(mutex_);
  if (!prefaulted_.ok()) return {};
  prefault_ = true;
  work_.NotifyAll();
  return std::move(prefaulted_);
}

void Backer::Run() {
  for (;;) {
    std::shared_ptr<Backing> backing;
    {
      MutexLock lock(mutex_);
      while (!stop_ && queue_.empty() && !prefault_) work_.Wait(mutex_);
      if (stop_) return;
      if (!queue_.empty()) {
        backing = std::move(queue_.front());
        queue_.pop_front();
      }
    }
    if (backing == nullptr) {
      MakePrefaulted();
    } else if (backing->BackNext()) {
      Back(std::move(backing));
    }
  }
}

void Backer::MakePrefaulted() {
  StatusOr<UniqueFd> made = shm::Segment::Prefault(prefaulted_bytes_);
  // Sessions take their pages themselves then, and tell what they lack.
  if (!made.ok()) LogDebug(absl::StrCat("no memory lies ready: ", made.status().message()));
  MutexLock lock(mutex_);
  prefault_ = false;
  if (made.ok()) prefaulted_ = *std::move(made);
}

}  // namespace loaderd::engine
