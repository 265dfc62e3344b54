// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/unix_socket.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "client/cpp/src/text.h"

namespace loaderd::client {
namespace {

std::string GroupName(gid_t gid) {
  std::vector<char> buffer(16384);
  struct group entry;
  struct group* found = nullptr;
  if (::getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->gr_name;
  }
  return "with id " + std::to_string(gid);
}

// Which group would let us in: that of the socket, or of its folder where even that is closed to
// us.
std::string WhomToJoin(const std::string& path) {
  struct stat facts;
  const std::string folder = path.substr(0, path.rfind('/'));
  if (::stat(path.c_str(), &facts) != 0 && ::stat(folder.c_str(), &facts) != 0) return {};
  return "; its group is " + Printable(GroupName(facts.st_gid)) +
         ": let the administrator add you to it (usermod -aG) and log in anew";
}

Status ConnectError(const std::string& path, int error) {
  const std::string name = Printable(path);
  switch (error) {
    case ENOENT:
      return Error(LOADERD_UNAVAILABLE,
                   "no daemon's socket at " + name +
                       ": nothing exists there; start the daemon (loaderd --user --socket " + name +
                       ", or systemctl start loaderd), or correct the path");
    case ENOTDIR:
      return Error(LOADERD_UNAVAILABLE, "no daemon's socket at " + name +
                                            ": a part of the path is not a folder; correct it");
    case ECONNREFUSED: {
      struct stat facts;
      if (::stat(path.c_str(), &facts) == 0 && !S_ISSOCK(facts.st_mode)) {
        return Error(LOADERD_UNAVAILABLE,
                     name + " is not a socket; name the socket that the daemon listens on");
      }
      return Error(LOADERD_UNAVAILABLE,
                   "nobody listens on " + name +
                       ": the daemon that made this socket is gone; start it again (loaderd --user "
                       "--socket " +
                       name + ", or systemctl start loaderd)");
    }
    case EACCES:
    case EPERM:
      return Error(LOADERD_PERMISSION_DENIED,
                   "no right to connect to the daemon's socket " + name + WhomToJoin(path));
    case EPROTOTYPE:
      return Error(LOADERD_UNAVAILABLE,
                   name + " is a socket of another type; name the one that the daemon listens on");
    default: return ErrnoError(LOADERD_UNAVAILABLE, "cannot connect to " + name, error);
  }
}

}  // namespace

Status ParseSocketPath(std::string_view given, std::string_view named_by, std::string* path) {
  std::string_view rest = given;
  constexpr std::string_view kScheme = "unix:";
  if (rest.starts_with(kScheme)) {
    rest.remove_prefix(kScheme.size());
    if (rest.starts_with("//")) rest.remove_prefix(2);
  }
  const auto refuse = [&](const std::string& fault) {
    return Error(LOADERD_INVALID_ARGUMENT,
                 "socket path '" + Printable(given) + "' (" + std::string(named_by) + ") " + fault);
  };
  if (rest.empty()) return refuse("is empty; name the daemon's socket by its absolute path");
  if (rest.front() != '/') return refuse("is not absolute; it must begin with '/'");
  if (rest.back() == '/') return refuse("names a folder; name the socket in it");
  const size_t length = std::max(rest.size(), SegmentSocketPath(rest).size());
  if (length > kMaxSocketPath) {
    const bool sibling = rest.size() <= kMaxSocketPath;
    return refuse(std::string(sibling ? "is too long: with the segment socket beside it it has "
                                      : "is too long: it has ") +
                  std::to_string(length) + " bytes, and a Unix socket's path at most " +
                  std::to_string(kMaxSocketPath) + "; let the daemon listen on a shorter one");
  }
  *path = std::string(rest);
  return Ok();
}

std::string SegmentSocketPath(std::string_view path) {
  constexpr std::string_view kSuffix = ".sock";
  const bool suffix = path.ends_with(kSuffix);
  if (suffix) path.remove_suffix(kSuffix.size());
  return std::string(path) + "-segment" + (suffix ? ".sock" : "");
}

Status Connect(const std::string& path, Patience* patience, std::unique_ptr<GuardedFd>* fd,
               int* error) {
  *error = 0;
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() > kMaxSocketPath) {
    return Error(LOADERD_INVALID_ARGUMENT, "socket path " + Printable(path) + " is too long");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  auto made = std::make_unique<GuardedFd>(
      [] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!made->ok()) {
    const bool full = made->error() == EMFILE || made->error() == ENFILE;
    return ErrnoError(
        LOADERD_RESOURCE_EXHAUSTED,
        std::string("cannot make a socket") +
            (full ? " (a loader needs one descriptor, and two while it opens; raise ulimit -n)"
                  : ""),
        made->error());
  }
  while (::connect(made->get(), reinterpret_cast<const struct sockaddr*>(&address),
                   sizeof address) != 0) {
    // A full queue of connections: the daemon accepts none for now.
    if (errno == EAGAIN || errno == EINTR) {
      Status waited = patience->Wait(
          -1, 0, "waiting for the daemon at " + Printable(path) + " to accept a connection",
          std::chrono::milliseconds(10));
      if (!waited.ok()) return waited;
      continue;
    }
    *error = errno;
    return ConnectError(path, *error);
  }
  *fd = std::move(made);
  return Ok();
}

}  // namespace loaderd::client
