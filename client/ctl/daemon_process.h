// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace loaderd::ctl {

// The daemon's executable: LOADERD_DAEMON, else `loaderd` beside this one, else in PATH.
absl::StatusOr<std::string> FindDaemon();

struct Finished {
  int exit_code = 0;   // 128 + N where signal N ended it
  std::string output;  // standard output and standard error
};
// Runs the daemon's executable to its end.
absl::StatusOr<Finished> RunDaemon(const std::vector<std::string>& arguments);

// A user daemon for one measurement: its own socket, configuration and log in a temporary folder,
// which goes with it. Should this process die, the daemon leaves by itself.
class PrivateDaemon {
 public:
  // Returns when it accepts connections. fleet_threads 0: as many as the daemon finds right.
  static absl::StatusOr<PrivateDaemon> Start(uint32_t fleet_threads);
  PrivateDaemon(PrivateDaemon&& other) noexcept;
  PrivateDaemon& operator=(PrivateDaemon&&) = delete;
  ~PrivateDaemon();  // SIGTERM, and SIGKILL after the stop deadline

  std::string socket() const { return folder_ + "/loaderd.sock"; }

 private:
  explicit PrivateDaemon(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Spawn(uint32_t fleet_threads);
  absl::Status WaitUntilItAccepts();

  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace loaderd::ctl
