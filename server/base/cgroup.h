// SPDX-License-Identifier: Apache-2.0
// What the cgroups (v1 and v2) of a process allow it: the tightest on the way to the root. `root`
// stands for "/" in tests; `process` is a PID or "self". Nothing is returned where nothing bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace loaderd {

std::optional<double> CgroupCpus(const std::string& root, const std::string& process = "self");
std::optional<uint64_t> CgroupMemory(const std::string& root, const std::string& process = "self");

// Threads and processes together.
struct TaskLimit {
  uint64_t most = 0;
  uint64_t now = 0;  // in the cgroup that has this limit
};
// The one that leaves the fewest.
std::optional<TaskLimit> CgroupTasks(const std::string& root, const std::string& process = "self");

}  // namespace loaderd
