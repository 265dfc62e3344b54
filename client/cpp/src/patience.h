// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "client/cpp/src/status.h"

namespace loaderd::client {

// How long a call that reaches for a daemon waits, and whom it asks meanwhile whether to go on.
class Patience {
 public:
  using Waiting = int (*)(void* arg, const char* what);

  // timeout_ms < 0: 60 seconds.
  Patience(int64_t timeout_ms, Waiting waiting, void* arg);

  // Waits for `events` on `fd` (-1: for nothing) for at most `most` and never past the deadline.
  // kDeadlineExceeded, naming `what`, once that has passed; kCancelled when the caller's function
  // says so; kForked in a child that the function made.
  Status Wait(int fd, short events, const std::string& what,
              std::chrono::milliseconds most = std::chrono::milliseconds(100));
  // The other side gave a sign of life: the time begins anew.
  void Restart();
  // From now on a signal ends Wait with kInterrupted.
  void EndBySignal() { by_signal_ = true; }
  // Waits from now on for as long as it takes.
  void WaitForever() { forever_ = true; }
  int64_t timeout_ms() const { return timeout_.count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Status Ask(const std::string& what);

  const std::chrono::milliseconds timeout_;
  const Waiting waiting_;
  void* const arg_;
  const uint64_t generation_;
  bool forever_ = false;
  bool by_signal_ = false;
  Clock::time_point deadline_;
  Clock::time_point asked_;
};

}  // namespace loaderd::client
