// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace loaderd::rpc {

// Who is at the other end of a connection, by the kernel's word (SO_PEERCRED): as it was when it
// connected. In another user or PID namespace uid is the kernel's overflow uid and pid 0: they are
// compared like any other value and give no right of their own.
struct Peer {
  uint64_t connection = 0;  // never reused
  uint32_t uid = 0;
  int64_t pid = 0;
};

}  // namespace loaderd::rpc
