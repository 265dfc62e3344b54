// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/base/status.h"

namespace loaderd::daemon {

// What the machine, or the part of it that the process may use, offers.
struct MachineFacts {
  uint32_t affinity_cpus = 1;  // sched_getaffinity
  std::optional<double>
      quota_cpus;  // of the tightest cgroup (v1 or v2) on the way to the root; none: no quota
  uint64_t memory_bytes = 0;
  std::optional<uint64_t> memory_limit;  // of the tightest cgroup
  uint64_t nofile_soft = 0;              // RLIMIT_NOFILE, after it was raised
  uint64_t nofile_hard = 0;
  // User mode: the system daemon's socket exists, or its folder is closed to us.
  bool beside_system_daemon = false;
};

// Everything but the RLIMIT_NOFILE fields. LOADERD_SYSTEM_SOCKET stands in for the system daemon's
// place, as for clients.
MachineFacts ReadMachine(bool user_mode);

// Where this process's paths mean what they mean: "mnt:[4026531841]", as namespaces(7) has it;
// empty where /proc does not tell.
std::string MountNamespace();

// Raises the soft limit to the hard one and fills both fields with what holds then; `was` is the
// soft limit before.
Status RaiseDescriptorLimit(MachineFacts* machine, uint64_t* was);

}  // namespace loaderd::daemon
