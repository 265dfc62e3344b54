// SPDX-License-Identifier: Apache-2.0
// Where the daemon's sockets stand. The client library follows the same rules.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "server/base/status.h"

namespace loaderd::daemon {

inline constexpr std::string_view kSystemSocket = "/run/loaderd/loaderd.sock";
// sockaddr_un holds 108 bytes and the kernel wants the terminating NUL within them.
inline constexpr size_t kMaxSocketPath = 107;

// The two sockets and the file whose lock says that a daemon is alive.
struct SocketPaths {
  std::string socket;
  std::string segment_socket;  // "X.sock" -> "X-segment.sock", else "-segment" is appended
  std::string lock;            // "X.sock" -> "X.lock", else ".lock" is appended
};

// kInvalidArgument when a path is relative, has a NUL, or is longer than kMaxSocketPath bytes: with
// the length and the cure.
StatusOr<SocketPaths> PathsFor(std::string_view socket);

// Whether a passed socket's address is a segment socket's.
bool IsSegmentPath(std::string_view path);

// The user daemon's folder, made with mode 0700 where it is missing: $XDG_RUNTIME_DIR/loaderd, else
// `run_user`/UID/loaderd where `run_user`/UID exists, else `tmp`/loaderd-UID. A symbolic link,
// another's folder, and one that others may enter are refused.
struct UserPlaces {
  std::string xdg_runtime_dir;  // may be empty
  std::string run_user = "/run/user";
  std::string tmp = "/tmp";
};
StatusOr<std::string> UserFolder(const UserPlaces& places, uid_t uid);

}  // namespace loaderd::daemon
