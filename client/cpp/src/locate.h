// SPDX-License-Identifier: Apache-2.0
// Which daemon: the named one, else the system's, else the user's.
#pragma once

#include <string>

#include "client/cpp/src/options.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

enum class Origin {
  kNamed,   // by the options or by LOADERD_SOCKET
  kSystem,  // found at its place
  kUser,    // in the user's own folder; may be started
};

struct Place {
  Origin origin = Origin::kNamed;
  std::string socket;
};

// LOADERD_SYSTEM_SOCKET stands in for the system's /run/loaderd/loaderd.sock; it is for tests and
// for packagers.
Status Locate(const Options& options, Place* place);
// The user's place. Makes its folder, and refuses one that others could have put there.
Status LocateUser(Place* place);
// The same for this mount namespace alone: the folder's name ends in the namespace's number.
Status LocateUserHere(Place* place);

// Whether the daemon that listens on the user's `socket` is one of another mount namespace, where
// the same paths lead to other files. It says so in the lock that it holds beside its socket.
bool IsElsewhere(const std::string& socket);

}  // namespace loaderd::client
