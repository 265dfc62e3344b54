// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/base/unique_fd.h"

namespace loaderd::engine {

// Memory that wants its pages taken, a slot at a time.
class Backing {
 public:
  virtual ~Backing() = default;
  // Takes the next slot's pages. False: it was the last one, or no more are wanted.
  virtual bool BackNext() = 0;
};

// One thread that takes pages from the kernel ahead of need: those of open sessions, in turns, and
// then those of a memfd for the session that comes next. Thread-safe.
class Backer {
 public:
  // `prefaulted_bytes`: of the memfd that lies ready; 0: none does.
  explicit Backer(uint64_t prefaulted_bytes);
  ~Backer();  // forgets what is left, then joins

  void Back(std::shared_ptr<Backing> backing);
  // A memfd that was never handed out, its pages taken; not ok() when none lies ready. Another one
  // is made.
  UniqueFd TakePrefaulted();

 private:
  void Run();
  void MakePrefaulted();

  const uint64_t prefaulted_bytes_;
  Mutex mutex_;
  CondVar work_;
  std::deque<std::shared_ptr<Backing>> queue_ ABSL_GUARDED_BY(mutex_);
  UniqueFd prefaulted_ ABSL_GUARDED_BY(mutex_);
  bool prefault_ ABSL_GUARDED_BY(mutex_) = false;  // one is to be made
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace loaderd::engine
