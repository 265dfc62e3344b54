// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/patience.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "client/cpp/src/fork_guard.h"

namespace loaderd::client {

using std::chrono::milliseconds;

Patience::Patience(int64_t timeout_ms, Waiting waiting, void* arg)
    // A week is "for ever" enough, and far from where a clock overflows.
    : timeout_(timeout_ms < 0 ? 60'000 : std::min<int64_t>(timeout_ms, 7 * 24 * 3'600'000LL)),
      waiting_(waiting),
      arg_(arg),
      generation_(ForkGeneration()),
      deadline_(Clock::now() + timeout_),
      asked_(Clock::now()) {}

void Patience::Restart() { deadline_ = Clock::now() + timeout_; }

Status Patience::Ask(const std::string& what) {
  asked_ = Clock::now();
  if (waiting_ != nullptr && waiting_(arg_, what.c_str()) != 0) {
    return Error(LOADERD_CANCELLED, "cancelled while " + what);
  }
  if (ForkGeneration() != generation_) {
    return Error(LOADERD_FORKED, "this process was forked while " + what);
  }
  return Ok();
}

Status Patience::Wait(int fd, short events, const std::string& what, milliseconds most) {
  const auto now = Clock::now();
  if (!forever_ && now >= deadline_) {
    return Error(LOADERD_DEADLINE_EXCEEDED,
                 "no answer within " + std::to_string(timeout_.count()) + " ms while " + what);
  }
  const auto left = std::chrono::ceil<milliseconds>(deadline_ - now);
  const milliseconds time = forever_ ? most : std::min(most, left);
  struct pollfd entry = {fd, events, 0};
  const int ready = ::poll(&entry, fd < 0 ? 0 : 1, static_cast<int>(time.count()));
  // A signal: its handler may have something to say through the caller's function.
  const bool interrupted = ready < 0 && errno == EINTR;
  if (interrupted && by_signal_) return Error(LOADERD_INTERRUPTED, "interrupted while " + what);
  if (interrupted || Clock::now() - asked_ >= milliseconds(90)) return Ask(what);
  return Ok();
}

}  // namespace loaderd::client
