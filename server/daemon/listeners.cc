// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/listeners.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/daemon/machine.h"

namespace loaderd::daemon {
namespace {

constexpr int kBacklog = 4096;  // the kernel lowers it to net.core.somaxconn
// How long a second instance waits for one that is just leaving.
constexpr std::chrono::milliseconds kLeavingLimit{1200};
constexpr std::chrono::milliseconds kLeavingStep{20};

sockaddr_un Address(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());  // PathsFor has bounded it
  return address;
}

// 0, or why nobody answers there.
int Connect(const std::string& path) {
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.ok()) return errno;
  const sockaddr_un address = Address(path);
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
             ? 0
             : errno;
}

const char* KindName(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Status InTheWay(const std::string& path, const std::string& found) {
  return absl::FailedPreconditionError(
      absl::StrCat("socket path ", Printable(path), ": ", found,
                   " stands there and is left untouched; remove it, or choose "
                   "another path (listen.socket or --socket)"));
}

// Removes the socket that a dead daemon of ours left. The lock is held: a live one is not possible.
Status ClearStale(const std::string& path) {
  struct stat facts;
  if (::lstat(path.c_str(), &facts) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : ErrnoStatus(errno, absl::StrCat("stat ", Printable(path)));
  }
  if (!S_ISSOCK(facts.st_mode)) return InTheWay(path, KindName(facts.st_mode));
  if (facts.st_uid != ::geteuid())
    return InTheWay(path, absl::StrCat("a socket of uid ", facts.st_uid));
  switch (Connect(path)) {
    case ECONNREFUSED: break;
    case ENOENT: return absl::OkStatus();
    case EPROTOTYPE: return InTheWay(path, "a socket of another type");
    default: return InTheWay(path, "the live socket of another program");
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return ErrnoStatus(errno, absl::StrCat("unlink ", Printable(path)));
  LogInfo(absl::StrCat("stale socket of a dead daemon removed path=", Printable(path)));
  return absl::OkStatus();
}

Status FolderMissing(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  return absl::NotFoundError(absl::StrCat(
      "folder ", Printable(folder), " of the socket does not exist; a unit makes it by ",
      "RuntimeDirectory=, by hand: mkdir -p ", Printable(folder)));
}

std::string PidIn(int lock) {
  char text[32] = {};
  const ssize_t size = ::pread(lock, text, sizeof(text) - 1, 0);
  std::string pid(text, size > 0 ? static_cast<size_t>(size) : 0);
  pid.resize(std::min(pid.find('\n'), pid.size()));
  absl::StripAsciiWhitespace(&pid);
  return pid.empty() ? "unknown" : Printable(pid);
}

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

Status Listeners::Lock() {
  const auto deadline = Clock::Real().Now() + kLeavingLimit;
  while (true) {
    lock_.reset(
        ::open(paths_.lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!lock_.ok()) {
      if (errno == ENOENT || errno == ENOTDIR) return FolderMissing(paths_.lock);
      if (errno == ELOOP) return InTheWay(paths_.lock, "a symbolic link");
      return ErrnoStatus(errno, absl::StrCat("open ", Printable(paths_.lock)));
    }
    struct stat held, named;
    if (::fstat(lock_.get(), &held) != 0)
      return ErrnoStatus(errno, absl::StrCat("stat ", Printable(paths_.lock)));
    if (!S_ISREG(held.st_mode)) return InTheWay(paths_.lock, KindName(held.st_mode));
    if (held.st_uid != ::geteuid())
      return InTheWay(paths_.lock, absl::StrCat("a file of uid ", held.st_uid));
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) {
      // Its last holder may have taken the name away between our open and our lock.
      if (::lstat(paths_.lock.c_str(), &named) == 0 && SameFile(held, named)) {
        made_.push_back({paths_.lock, held.st_dev, held.st_ino});
        return WritePid();
      }
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR)
      return ErrnoStatus(errno, absl::StrCat("flock ", Printable(paths_.lock)));
    // Whoever answers is there to stay; whoever does not may be on its way out.
    if (Connect(paths_.socket) == 0 || Clock::Real().Now() >= deadline) {
      const std::string pid = PidIn(lock_.get());
      lock_.reset();
      return absl::AlreadyExistsError(absl::StrCat("already running: loaderd with PID ", pid,
                                                   " holds ", Printable(paths_.lock),
                                                   " and serves ", Printable(paths_.socket)));
    }
    std::this_thread::sleep_for(kLeavingStep);
  }
}

Status Listeners::WritePid() {
  if (!lock_.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat(::getpid(), "\n", MountNamespace(), "\n");
  // In this order a reader finds two whole lines at any time.
  if (::pwrite(lock_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::ftruncate(lock_.get(), static_cast<off_t>(text.size())) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", Printable(paths_.lock)));
  }
  return absl::OkStatus();
}

StatusOr<UniqueFd> Listeners::Make(const std::string& path, const Options& options) {
  RETURN_IF_ERROR(ClearStale(path));
  UniqueFd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.ok()) return ErrnoStatus(errno, "socket AF_UNIX");
  const sockaddr_un address = Address(path);
  // The file is born with the mode it keeps, whatever umask was inherited; and nobody connects
  // before listen(), by which time it also has its group.
  const mode_t umask = ::umask(0777 & ~options.mode);
  const int bound =
      ::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  ::umask(umask);
  if (bound != 0) {
    if (error == ENOENT || error == ENOTDIR) return FolderMissing(path);
    return ErrnoStatus(error, absl::StrCat("bind ", Printable(path)));
  }
  struct stat facts;
  if (::lstat(path.c_str(), &facts) != 0)
    return ErrnoStatus(errno, absl::StrCat("stat ", Printable(path)));
  made_.push_back({path, facts.st_dev, facts.st_ino});
  const gid_t group = options.group.value_or(::getegid());
  if (facts.st_gid != group && ::lchown(path.c_str(), static_cast<uid_t>(-1), group) != 0) {
    return ErrnoStatus(errno,
                       absl::StrCat("chown ", Printable(path), " to group ", group,
                                    " (listen.group: the daemon's user must be a member of it)"));
  }
  if (::listen(made.get(), kBacklog) != 0)
    return ErrnoStatus(errno, absl::StrCat("listen ", Printable(path)));
  return made;
}

Status Listeners::Adopt(PassedDescriptor passed, SocketPaths* passed_paths) {
  const int fd = passed.fd.get();
  const std::string who = absl::StrCat("passed descriptor ", fd, " (", Printable(passed.name), ")");
  const auto refuse = [&](const std::string& found) {
    return absl::FailedPreconditionError(absl::StrCat(
        who, " ", found,
        "; wanted: a listening Unix stream socket (ListenStream= of the socket unit)"));
  };
  struct stat facts;
  if (::fstat(fd, &facts) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", who));
  if (!S_ISSOCK(facts.st_mode)) return refuse(absl::StrCat("is ", KindName(facts.st_mode)));
  const auto option = [&](int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  if (option(SO_DOMAIN) != AF_UNIX) return refuse("is no Unix socket");
  if (option(SO_TYPE) != SOCK_STREAM) return refuse("is no stream socket");
  if (option(SO_ACCEPTCONN) != 1) return refuse("does not listen");

  sockaddr_un address = {};
  socklen_t size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return ErrnoStatus(errno, absl::StrCat("getsockname of ", who));
  }
  std::string path;
  if (size > offsetof(sockaddr_un, sun_path)) {
    path.assign(address.sun_path,
                ::strnlen(address.sun_path, size - offsetof(sockaddr_un, sun_path)));
  }
  if (path.empty() || path[0] != '/') return refuse("has no absolute path as its address");

  const bool segment = passed.name == "segment" || (passed.name != "grpc" && IsSegmentPath(path));
  UniqueFd& place = segment ? segment_socket_ : socket_;
  if (place.ok())
    return refuse(absl::StrCat("at ", Printable(path), " is the second ",
                               segment ? "segment" : "gRPC", " socket"));
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
    return ErrnoStatus(errno, absl::StrCat("fcntl ", who));
  (segment ? passed_paths->segment_socket : passed_paths->socket) = path;
  place = std::move(passed.fd);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Listeners>> Listeners::Open(const Options& options,
                                                     std::vector<PassedDescriptor> passed) {
  std::unique_ptr<Listeners> listeners(new Listeners);
  SocketPaths passed_paths;
  for (PassedDescriptor& descriptor : passed) {
    RETURN_IF_ERROR(listeners->Adopt(std::move(descriptor), &passed_paths));
  }
  listeners->paths_ = options.paths;
  if (listeners->socket_.ok()) {
    ASSIGN_OR_RETURN(listeners->paths_, PathsFor(passed_paths.socket));
  }
  const SocketPaths& paths = listeners->paths_;
  if (listeners->segment_socket_.ok() && passed_paths.segment_socket != paths.segment_socket) {
    return absl::FailedPreconditionError(absl::StrCat(
        "passed segment socket is ", Printable(passed_paths.segment_socket), ", but clients of ",
        Printable(paths.socket), " look for it at ", Printable(paths.segment_socket)));
  }
  if (listeners->socket_.ok() && listeners->segment_socket_.ok()) {
    if (options.lock_passed && !listeners->Lock().ok()) listeners->lock_.reset();
    return listeners;
  }
  RETURN_IF_ERROR(listeners->Lock());
  if (!listeners->socket_.ok()) {
    ASSIGN_OR_RETURN(listeners->socket_, listeners->Make(paths.socket, options));
  }
  if (!listeners->segment_socket_.ok()) {
    ASSIGN_OR_RETURN(listeners->segment_socket_, listeners->Make(paths.segment_socket, options));
  }
  return listeners;
}

Listeners::~Listeners() { Remove(); }

void Listeners::Remove() {
  if (removed_.exchange(true)) return;
  // The lock's name goes last, while it is still held.
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
    struct stat facts;
    if (::lstat(made->path.c_str(), &facts) == 0 && facts.st_dev == made->device &&
        facts.st_ino == made->inode) {
      ::unlink(made->path.c_str());
    }
  }
}

std::string Listeners::description() const {
  const auto made = [&](const std::string& path) {
    for (const Made& own : made_) {
      if (own.path == path) return " (own)";
    }
    return " (passed)";
  };
  return absl::StrCat("socket=", Printable(paths_.socket), made(paths_.socket),
                      " segment_socket=", Printable(paths_.segment_socket),
                      made(paths_.segment_socket));
}

}  // namespace loaderd::daemon
