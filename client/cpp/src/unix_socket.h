// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "client/cpp/src/fork_guard.h"
#include "client/cpp/src/patience.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

inline constexpr size_t kMaxSocketPath = 107;  // sun_path less its terminating zero

// The path of a socket as a user may write it: absolute, or with the prefixes "unix:" and
// "unix://". `named_by` ("LOADERD_SOCKET",
// ...) goes into the error.
Status ParseSocketPath(std::string_view given, std::string_view named_by, std::string* path);
// "X.sock" -> "X-segment.sock"; without that suffix "-segment" is appended.
std::string SegmentSocketPath(std::string_view path);

// Connects without blocking; waits only where the daemon's queue is full. *error is the errno of a
// failed connect, else 0. The status says what is wrong with `path` and what to do.
Status Connect(const std::string& path, Patience* patience, std::unique_ptr<GuardedFd>* fd,
               int* error);

}  // namespace loaderd::client
