// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace loaderd::rpc {

// A few threads for what blocks on storage while a session opens (indexing), so that gRPC's threads
// never do. Thread-safe.
class Opener {
 public:
  explicit Opener(int threads);
  ~Opener();  // drops what has not begun, waits for what has

  void Post(std::function<void()> work);

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace loaderd::rpc
