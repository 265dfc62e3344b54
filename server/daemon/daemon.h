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

// A whole daemon: budgets, catalog, engine and front, wired and owned. One a process: SIGTERM,
// SIGINT and SIGHUP are its own, SIGPIPE is ignored, and a stop that is stuck at its deadline
// leaves the process, with 0.
class Daemon {
 public:
  struct Setup {
    Config config;
    MachineFacts machine;
    std::unique_ptr<Listeners> listeners;
    bool user_mode = false;
    uint32_t idle_exit_s = 0;  // user mode; 0: never
    // SIGHUP: reads the configuration again.
    std::function<StatusOr<Config>()> reload;
  };
  // Connections wait in the backlog until Run().
  static StatusOr<std::unique_ptr<Daemon>> Create(Setup setup);
  virtual ~Daemon() = default;  // after Run() has returned, or was never called

  // Until a stop. Once, on the thread that created it.
  virtual void Run() = 0;
};

// The signals that a Daemon handles wait until its Run(). Before any thread: without it, one that
// comes between listening and Run() ends the process with its sockets left behind.
void HoldSignals();

// The program.
int Main(int argc, char** argv);

}  // namespace loaderd::daemon
