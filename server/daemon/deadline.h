// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace loaderd::daemon {

// Calls `passed` on a thread of its own when `limit` passes before the destructor: a stop that is
// stuck in storage or in a decoder must not keep the process.
class Deadline {
 public:
  Deadline(std::chrono::milliseconds limit, std::function<void()> passed);
  ~Deadline();

 private:
  void Wait(std::chrono::milliseconds limit);

  const std::function<void()> passed_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last: it uses all of the above
};

}  // namespace loaderd::daemon
