// SPDX-License-Identifier: Apache-2.0
// What a process has open, by /proc: the one place in C++ that knows what kinds of descriptor there
// are. loaderd.fds is the same for Python, held to the same table by tests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/base/status.h"

namespace loaderd {

// The kind of a descriptor: "file", "directory", "shm" (a file in /dev/shm), "device", "socket",
// "pipe", "memfd", "eventfd", "epoll", "timerfd", "signalfd", "pidfd", "inotify", "io_uring" and
// whatever else the kernel calls its nameless inodes; "other" for the rest. `link` is what
// /proc/PID/fd/N points to; `type` the S_IFMT bits of a path, 0 where they are not known. Pure.
std::string DescriptorKind(std::string_view link, mode_t type);

// What a descriptor is open on: the path; of a memfd its name; of nameless things one word for all
// of them. Pure.
std::string DescriptorTarget(std::string_view link);

struct OpenDescriptor {
  int number = -1;
  std::string kind;
  std::string target;  // of a socket also "unix PATH", "tcp", "udp", as far as /proc tells
};

// `process` is a PID or "self". Never waits for storage that hangs. Without what the look itself
// has open. kNotFound: no such process; kPermissionDenied: another user's, who is named.
StatusOr<std::vector<OpenDescriptor>> ListDescriptors(const std::string& process);

// Counts by kind of "self" without looking up the names of sockets.
std::map<std::string, uint64_t> CountOwnDescriptorsByKind();
// Cheap: one call from Linux 6.2 on.
uint64_t CountOwnDescriptors();

struct ResourceLimit {
  static constexpr uint64_t kUnlimited = UINT64_MAX;
  uint64_t soft = 0;
  uint64_t hard = 0;
};
// One line of /proc/PID/limits, e.g. "Max open files". kNotFound: no such process or line.
StatusOr<ResourceLimit> ReadLimit(const std::string& process, std::string_view name);

// The files of /proc/net by which sockets get their names, parsed into `names`: inode -> target.
void ParseUnixSockets(std::string_view text, std::map<uint64_t, std::string>& names);
void ParseInternetSockets(std::string_view text, const std::string& target,
                          std::map<uint64_t, std::string>& names);

}  // namespace loaderd
