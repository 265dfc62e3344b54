// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace loaderd::daemon {

// The command line.
struct CommandLine {
  bool user_mode = false;
  std::string config_file;
  std::string socket;         // in place of the configuration's; empty: that one
  uint32_t idle_exit_s = 60;  // user mode; 0: never
  bool check = false;
  bool needs = false;
  bool detach = false;
};

struct ParsedCommandLine {
  std::optional<int>
      exit_code;  // set: leave with it; --help, --version and errors have been printed
  CommandLine command;
};
ParsedCommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace loaderd::daemon
