// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/locate.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "client/cpp/src/fork_guard.h"
#include "client/cpp/src/text.h"
#include "client/cpp/src/unix_socket.h"

namespace loaderd::client {
namespace {

constexpr char kSystemSocket[] = "/run/loaderd/loaderd.sock";
constexpr char kCure[] =
    "; remove it, or set XDG_RUNTIME_DIR or LOADERD_SOCKET to a place of your own";

const char* Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// A folder that exists and is ours: after su or sudo the variable may still name another user's.
bool OwnFolder(const std::string& path) {
  struct stat facts;
  return path.starts_with('/') && ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
         facts.st_uid == ::geteuid();
}

std::string UserFolder() {
  const std::string uid = std::to_string(::geteuid());
  const char* const runtime = Environment("XDG_RUNTIME_DIR");
  if (runtime != nullptr && OwnFolder(runtime)) return std::string(runtime) + "/loaderd";
  const std::string standard = "/run/user/" + uid;
  if (OwnFolder(standard)) return standard + "/loaderd";
  return "/tmp/loaderd-" + uid;
}

Status MakePrivate(const std::string& folder) {
  const std::string name = "folder " + Printable(folder) + " for the user's daemon ";
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoError(LOADERD_UNAVAILABLE, name + "cannot be made", errno);
  }
  struct stat facts;
  if (::lstat(folder.c_str(), &facts) != 0) {
    return ErrnoError(LOADERD_UNAVAILABLE, name + "cannot be looked at", errno);
  }
  std::string fault;
  if (S_ISLNK(facts.st_mode)) {
    fault = "is a symbolic link";
  } else if (!S_ISDIR(facts.st_mode)) {
    fault = "is not a folder";
  } else if (facts.st_uid != ::geteuid()) {
    fault = "belongs to uid " + std::to_string(facts.st_uid) + ", not to " +
            std::to_string(::geteuid());
  } else if ((facts.st_mode & 0077) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", facts.st_mode & 07777);
    fault = std::string("has mode ") + mode + ", which lets others in (wanted: 0700)";
  }
  if (fault.empty()) return Ok();
  return Error(LOADERD_FAILED_PRECONDITION, name + fault + kCure);
}

// As readlink(2) of it says, "mnt:[4026531841]"; empty where /proc does not tell.
std::string MountNamespace() {
  char name[64];
  const ssize_t length = ::readlink("/proc/self/ns/mnt", name, sizeof name);
  return length > 0 ? std::string(name, static_cast<size_t>(length)) : "";
}

Status LocateIn(const std::string& folder, Place* place) {
  Status status = ParseSocketPath(folder + "/loaderd.sock", "the user's folder", &place->socket);
  if (!status.ok()) return status;
  place->origin = Origin::kUser;
  return MakePrivate(folder);
}

}  // namespace

Status Locate(const Options& options, Place* place) {
  place->origin = Origin::kNamed;
  if (options.socket.has_value()) {
    return ParseSocketPath(*options.socket, "the socket option", &place->socket);
  }
  if (const char* const named = std::getenv("LOADERD_SOCKET")) {
    return ParseSocketPath(named, "LOADERD_SOCKET", &place->socket);
  }
  const char* const system = Environment("LOADERD_SYSTEM_SOCKET");
  Status status = ParseSocketPath(system != nullptr ? system : kSystemSocket,
                                  "LOADERD_SYSTEM_SOCKET", &place->socket);
  if (!status.ok()) return status;
  struct stat facts;
  // A folder that is closed to us hides a system's daemon; that we have no right to it is for the
  // user to know.
  if (::stat(place->socket.c_str(), &facts) == 0 || errno == EACCES) {
    place->origin = Origin::kSystem;
    return Ok();
  }
  return LocateUser(place);
}

Status LocateUser(Place* place) { return LocateIn(UserFolder(), place); }

Status LocateUserHere(Place* place) {
  std::string number;
  for (const char c : MountNamespace()) {
    if (c >= '0' && c <= '9') number += c;
  }
  return LocateIn(UserFolder() + "-" + number, place);
}

bool IsElsewhere(const std::string& socket) {
  const std::string here = MountNamespace();
  std::string path = socket;
  if (path.ends_with(".sock")) path.resize(path.size() - 5);
  path += ".lock";
  const GuardedFd lock(
      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
  // Who can have the lock reads what a dead daemon left; the one that listens does without.
  if (here.empty() || !lock.ok() || ::flock(lock.get(), LOCK_SH | LOCK_NB) == 0) return false;
  char text[128];
  const ssize_t size = ::pread(lock.get(), text, sizeof text, 0);
  const std::string_view told(text, size > 0 ? static_cast<size_t>(size) : 0);
  const size_t begin = told.find("mnt:[");
  if (begin == std::string_view::npos) return false;
  return told.substr(begin, told.find('\n', begin) - begin) != here;
}

}  // namespace loaderd::client
