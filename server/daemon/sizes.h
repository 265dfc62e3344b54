// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/daemon/config.h"
#include "server/daemon/machine.h"

namespace loaderd::daemon {

// What the daemon keeps for itself where it can be had: standard streams, listeners, the lock,
// event loops, gRPC's own, folders being indexed.
inline constexpr uint64_t kReserveBase = 64;
inline constexpr uint64_t kReservePerCpu = 4;
// The least with which it works; held against the measured need by an end-to-end test.
inline constexpr uint64_t kLeastReserve = 28;
// What one trainer holds: its connection (and the duplicate that watches it) and its segment; and
// what its segment hand-off takes for a moment.
inline constexpr uint64_t kPerConnection = 2;
inline constexpr uint64_t kPerTrainer = kPerConnection + 1;
inline constexpr uint64_t kLeastBudget = 1 + kPerTrainer + kPerConnection;

// What a thread counts when the budget bounds their number: so many descriptors stay for trainers.
inline constexpr uint64_t kPerDecodeThread = 8;
inline constexpr uint64_t kPerReader = 4;
// Threads beside fleet, readers and indexing, at most: gRPC's, which grow by the CPU, the openers,
// the main one; held against the measured number by an end-to-end test.
inline constexpr uint64_t kOwnThreads = 24;
inline constexpr uint64_t kOwnThreadsPerCpu = 4;
inline constexpr uint32_t kMostIndexThreads = 8;

// Every number that the daemon starts with.
struct Sizes {
  uint32_t fleet_threads = 1;
  uint32_t reader_threads = 1;
  std::string fleet_reason;  // how fleet_threads came about, for people

  uint64_t descriptor_limit = 0;
  uint64_t descriptor_reserve = 0;
  uint64_t descriptors = 0;  // the budget: limit - reserve
  uint32_t max_connections = 0;
  uint32_t max_sessions = 0;
  uint32_t max_sessions_per_uid = 0;
  uint64_t slot_bytes = 0;
  uint64_t slot_bytes_per_uid = 0;
  uint64_t prefaulted_bytes = 0;
  uint32_t max_reads_in_flight = 0;

  std::vector<std::string> lowered;  // a line for each wish that the descriptors do not allow
};

// Pure. The documented formulas:
//   reserve  = limits.descriptor_reserve, else min(64 + 4 * CPUs, limit / 2), at least
//   kLeastReserve budget   = RLIMIT_NOFILE - reserve CPUs     = min(affinity, cgroup quota rounded
//   up); a user daemon beside a system daemon: half of them, at least 1 fleet    = fleet.threads,
//   else CPUs; at most budget / 8 readers  = fleet.reader_threads, else 2 * fleet within 4 to 64;
//   at most budget / 4, for each holds a file while it reads sessions = limits.max_sessions; at
//   most (budget - readers) / 3 slots    = limits.slot_bytes, else a quarter of min(memory,
//   cgroup's memory limit)
//   prefaulted = limits.prefaulted_bytes, else 64 MiB; at most slots / 16, in whole MiB
// kResourceExhausted, with the arithmetic, where the limit does not even hold one trainer.
StatusOr<Sizes> ComputeSizes(const Config& config, const MachineFacts& machine);

// What the configuration asks of the machine.
struct Needs {
  uint64_t descriptors = 0;  // the least RLIMIT_NOFILE with which ComputeSizes lowers nothing
  std::string arithmetic;    // how that comes about; printable ASCII without quotes
  uint64_t threads = 0;      // at most
  uint64_t slot_bytes = 0;
};
// Pure; the machine's own RLIMIT_NOFILE does not matter.
Needs ComputeNeeds(const Config& config, const MachineFacts& machine);

}  // namespace loaderd::daemon
