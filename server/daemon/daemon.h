// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/base/status.h"
#include "server/daemon/config.h"
#include "server/daemon/listeners.h"
#include "server/daemon/sizes.h"

namespace loaderd::daemon {

// A whole daemon: budgets, catalog, engine and front, wired and owned.
class Daemon {
 public:
  struct Setup {
    Config config;
    MachineFacts machine;
    std::unique_ptr<Listeners> listeners;
    bool user_mode = false;
    uint32_t idle_exit_s = 0;     // user mode; 0: never
    bool handle_signals = false;  // SIGTERM, SIGINT, SIGHUP are this daemon's; SIGPIPE is ignored
    // At the stop deadline with something still stuck: leave the process with 0. Off: wait for it.
    bool leave_at_deadline = false;
    // SIGHUP: reads the configuration again.
    std::function<StatusOr<Config>()> reload;
  };
  // Serves from when Run() is called; connections wait in the backlog until then.
  static StatusOr<std::unique_ptr<Daemon>> Create(Setup setup);
  virtual ~Daemon() = default;  // after Run() has returned, or was never called

  // Until a stop. Once, on the thread that created it.
  virtual void Run() = 0;
  // As SIGTERM. From any thread, while Run() runs.
  virtual void Stop() = 0;
  virtual const Sizes& sizes() const = 0;
};

// The program.
int Main(int argc, char** argv);

}  // namespace loaderd::daemon
