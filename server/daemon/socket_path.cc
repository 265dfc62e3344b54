// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/socket_path.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/unique_fd.h"

namespace loaderd::daemon {
namespace {

Status CheckLength(const char* what, const std::string& path) {
  if (path.size() <= kMaxSocketPath) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " path ", Printable(path), " has ", path.size(),
                   " bytes, and a Unix socket's path at most ", kMaxSocketPath,
                   "; choose a shorter one (listen.socket or --socket)"));
}

// Made here or found: in both cases looked at through a descriptor, so that nothing changes in
// between.
Status PrivateFolder(const std::string& path, uid_t uid) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("mkdir ", Printable(path)));
  }
  const UniqueFd folder(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts;
  if (!folder.ok() || ::fstat(folder.get(), &facts) != 0) {
    return ErrnoStatus(errno, absl::StrCat("open ", Printable(path)));
  }
  const auto refuse = [&](const std::string& found) {
    return absl::FailedPreconditionError(
        absl::StrCat("folder ", Printable(path), " for the socket ", found,
                     "; remove it, or set XDG_RUNTIME_DIR or --socket to a place of your own"));
  };
  if (S_ISLNK(facts.st_mode)) return refuse("is a symbolic link");
  if (!S_ISDIR(facts.st_mode)) return refuse("is not a folder");
  if (facts.st_uid != uid)
    return refuse(absl::StrCat("belongs to uid ", facts.st_uid, ", not ", uid));
  if ((facts.st_mode & 0077) != 0) {
    return refuse(absl::StrFormat("has mode %04o, which lets others in (wanted: 0700)",
                                  facts.st_mode & 07777));
  }
  return absl::OkStatus();
}

std::string WithoutSock(std::string_view path) {
  constexpr std::string_view kEnding = ".sock";
  if (path.ends_with(kEnding)) path.remove_suffix(kEnding.size());
  return std::string(path);
}

bool IsFolder(const std::string& path) {
  struct stat facts;
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

}  // namespace

StatusOr<SocketPaths> PathsFor(std::string_view socket) {
  if (socket.empty() || socket[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path '", Printable(socket), "' must be absolute (begin with '/')"));
  }
  if (socket.find('\0') != std::string_view::npos || socket.back() == '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path ", Printable(socket), " names no file"));
  }
  SocketPaths paths;
  paths.socket = std::string(socket);
  const bool sock = socket.ends_with(".sock");
  const std::string stem = WithoutSock(socket);
  paths.segment_socket = absl::StrCat(stem, "-segment", sock ? ".sock" : "");
  paths.lock = absl::StrCat(stem, ".lock");
  RETURN_IF_ERROR(CheckLength("socket", paths.socket));
  RETURN_IF_ERROR(CheckLength("segment socket", paths.segment_socket));
  return paths;
}

bool IsSegmentPath(std::string_view path) { return WithoutSock(path).ends_with("-segment"); }

StatusOr<std::string> UserFolder(const UserPlaces& places, uid_t uid) {
  std::string folder;
  const std::string run_user = absl::StrCat(places.run_user, "/", uid);
  if (!places.xdg_runtime_dir.empty()) {
    folder = absl::StrCat(places.xdg_runtime_dir, "/loaderd");
  } else if (IsFolder(run_user)) {
    folder = absl::StrCat(run_user, "/loaderd");
  } else {
    folder = absl::StrCat(places.tmp, "/loaderd-", uid);
  }
  RETURN_IF_ERROR(PrivateFolder(folder, uid));
  return folder;
}

}  // namespace loaderd::daemon
