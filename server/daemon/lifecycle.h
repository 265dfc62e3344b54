// SPDX-License-Identifier: Apache-2.0
// The service manager's side of the daemon: descriptors that it passes, notifications to it, its
// watchdog. The only place that knows systemd. Without a service manager every call does nothing.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/base/unique_fd.h"

namespace boost::asio {
class io_context;
}

namespace loaderd::daemon {

struct PassedDescriptor {
  UniqueFd fd;
  std::string name;  // of LISTEN_FDNAMES, else "unknown"
};

// What LISTEN_FDS passes to this process; LISTEN_* leave the environment. None where LISTEN_PID is
// another's. Before any thread.
StatusOr<std::vector<PassedDescriptor>> TakePassedDescriptors();

namespace notify {
void Ready();
void Reloading();  // Ready() ends it
void StatusText(const std::string& text);
// The stop ends by itself within `limit`; the watchdog and the stop's own limit in the unit are
// told to wait for it.
void Stopping(std::chrono::milliseconds limit);
}  // namespace notify

// Answers WatchdogSec=, if the unit has it: half its time after the last, `healthy` is asked on a
// thread of its own, and only when it has come back with true does the loop of `io` answer. So
// neither a stuck loop nor a stuck `healthy` is taken for life.
class Watchdog {
 public:
  // `healthy` may block. Lives on the thread that runs `io`; `healthy`'s operands outlive it.
  Watchdog(boost::asio::io_context& io, std::function<bool()> healthy);
  ~Watchdog();  // waits for `healthy` to come back

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loaderd::daemon
