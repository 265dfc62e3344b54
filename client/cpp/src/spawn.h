// SPDX-License-Identifier: Apache-2.0
// Starting the user's daemon. It becomes nobody's child: `loaderd --detach` forks before it has
// threads, and its first process is reaped here.
#pragma once

#include <memory>
#include <string>

#include "client/cpp/src/fork_guard.h"
#include "client/cpp/src/options.h"
#include "client/cpp/src/patience.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

// The daemon's executable: options.daemon, else LOADERD_DAEMON, else beside this library, else in
// PATH.
Status FindDaemon(const Options& options, std::string* executable);

// Connects to the user's daemon on `socket`, whose folder is the user's own, and starts one where
// none answers. Of several processes that do this at once one starts it.
Status ConnectOrStart(const Options& options, const std::string& socket, Patience* patience,
                      std::unique_ptr<GuardedFd>* fd);

}  // namespace loaderd::client
