// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace loaderd::rpc {

// What /proc and getrusage say of this process.
struct ProcessFacts {
  int64_t pid = 0;
  uint64_t descriptors = 0;
  uint32_t threads = 0;
  uint64_t resident_bytes = 0;
  double cpu_s = 0;  // user and system, all threads
};
ProcessFacts ReadProcessFacts();

struct DescriptorCount {
  std::string kind;  // "sockets", "memfds", "files", "events", "other"
  uint64_t open = 0;
  std::string detail;
};
std::vector<DescriptorCount> CountDescriptors();

}  // namespace loaderd::rpc
