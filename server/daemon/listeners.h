// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/base/unique_fd.h"
#include "server/daemon/lifecycle.h"
#include "server/daemon/socket_path.h"

namespace loaderd::daemon {

// Both listening sockets, passed by the service manager or made here, and the lock that keeps a
// second daemon from taking a live one's sockets: held on a file beside the socket for the
// process's life, so that the kernel drops it at any death.
class Listeners {
 public:
  struct Options {
    SocketPaths paths;
    mode_t mode = 0600;
    std::optional<gid_t> group;  // none: the daemon's own
    // Hold the lock beside passed sockets too, where it can be had: for what clients read in it.
    bool lock_passed = false;
  };
  // Takes `passed` over; which of the two sockets each is, its name says ("grpc", "segment"), else
  // its address. What is not passed is made, beside what is. Replaces a dead daemon's sockets, and
  // nothing else: whatever stands in the way is named and left alone. Never is a socket open to
  // more than `mode` and `group` allow. Changes the umask for a moment: before any thread.
  static StatusOr<std::unique_ptr<Listeners>> Open(const Options& options,
                                                   std::vector<PassedDescriptor> passed);
  ~Listeners();  // Remove()

  // Each once; non-blocking and listening.
  UniqueFd TakeSocket() { return std::move(socket_); }
  UniqueFd TakeSegmentSocket() { return std::move(segment_socket_); }
  const SocketPaths& paths() const { return paths_; }
  std::string description() const;  // for the log

  // The lock file tells the PID of who holds it, and in which mount namespace that is; again after
  // a fork.
  Status WritePid();
  // Takes our own files away, as far as they still are ours. Thread-safe; only the first call does
  // anything.
  void Remove();

 private:
  struct Made {
    std::string path;
    dev_t device;
    ino_t inode;
  };
  Listeners() = default;
  Status Lock();
  Status Adopt(PassedDescriptor passed, SocketPaths* passed_paths);
  StatusOr<UniqueFd> Make(const std::string& path, const Options& options);

  SocketPaths paths_;
  UniqueFd socket_;
  UniqueFd segment_socket_;
  UniqueFd lock_;
  std::vector<Made> made_;
  std::atomic<bool> removed_ = false;
};

}  // namespace loaderd::daemon
