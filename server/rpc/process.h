// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

// What the daemon holds descriptors of this kind for, for people; may be empty.
std::string DescriptorPurpose(std::string_view kind);

}  // namespace loaderd::rpc
