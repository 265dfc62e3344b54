// SPDX-License-Identifier: Apache-2.0
// What a command hands back to main: its exit code, and the one place where errors are told.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace loaderd::ctl {

// Exit codes, as --help lists them.
inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoDaemon = 3;

// Options that every command has.
struct Shared {
  std::string socket;  // empty: see CandidateSockets
  bool json = false;
};

// Prints an error to standard error, one line, and returns its exit code.
int Fail(const absl::Status& status);

}  // namespace loaderd::ctl
