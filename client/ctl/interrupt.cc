// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/interrupt.h"

#include <csignal>

namespace loaderd::ctl {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void Remember(int) { interrupted = 1; }

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = Remember;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

}  // namespace loaderd::ctl
