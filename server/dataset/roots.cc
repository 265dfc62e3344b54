// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/roots.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "server/dataset/storage_health.h"

namespace loaderd::dataset {
namespace {

constexpr char kOutsideMark[] = "loaderd/outside-roots";
constexpr int kAlways = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

// O_PATH takes no other flags than these; openat2 refuses what open ignores.
int WithAlways(int flags) { return flags & O_PATH ? flags | O_CLOEXEC : flags | kAlways; }

int OpenBeneath(int root, const char* path, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(::syscall(SYS_openat2, root, path, &how, sizeof(how)));
}

// `path` below `root`, or nullopt. Lexical: dots are the kernel's to judge.
std::optional<std::string_view> Below(std::string_view path, std::string_view root) {
  if (root.empty() || !path.starts_with(root)) return std::nullopt;
  std::string_view rest = path.substr(root.size());
  if (!rest.empty() && rest[0] != '/' && root != "/") return std::nullopt;
  while (!rest.empty() && rest[0] == '/') rest.remove_prefix(1);
  return rest.empty() ? "." : rest;
}

std::string FdPath(int fd) { return absl::StrCat("/proc/self/fd/", fd); }

// What the descriptor's file is called now; empty when /proc cannot say.
std::string NameOfFd(int fd) {
  char name[PATH_MAX];
  const ssize_t length = ::readlink(FdPath(fd).c_str(), name, sizeof(name));
  return length <= 0 ? "" : std::string(name, static_cast<size_t>(length));
}

}  // namespace

std::shared_ptr<const Roots> Roots::Unrestricted() {
  static const std::shared_ptr<const Roots> all = std::make_shared<Roots>();
  return all;
}

Roots::Root Roots::OpenRoot(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  Root root{.path = std::move(path), .canonical = {}, .fd = {}};
  root.fd.reset(::open(root.path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat status;
  if (!root.fd.ok() || ::fstat(root.fd.get(), &status) != 0) return root;
  root.device = status.st_dev;
  root.inode = status.st_ino;
  root.canonical = NameOfFd(root.fd.get());
  return root;
}

std::shared_ptr<const Roots> Roots::Only(const std::vector<std::string>& folders,
                                         std::string field) {
  auto made = std::make_shared<Roots>();
  made->restricted_ = true;
  made->field_ = std::move(field);
  for (const std::string& folder : folders) made->roots_.push_back(OpenRoot(folder));
  return made;
}

bool Roots::Current() const {
  for (const Root& root : roots_) {
    struct stat status;
    if (::stat(root.path.c_str(), &status) != 0) {
      if (root.fd.ok()) return false;
    } else if (!root.fd.ok() || status.st_dev != root.device || status.st_ino != root.inode) {
      return false;
    }
  }
  return true;
}

Status Roots::Outside(const std::string& path) const {
  std::string names;
  for (const Root& root : roots_)
    absl::StrAppend(&names, names.empty() ? "" : ", ", Printable(root.path));
  Status status = absl::PermissionDeniedError(
      absl::StrCat(Printable(path), ": is not in a folder of the daemon's setting ", field_,
                   ", or leads out of them, or to nothing (",
                   names.empty() ? "it names none" : names, "); add the folder that holds it"));
  status.SetPayload(kOutsideMark, absl::Cord());
  return status;
}

bool Roots::Refused(const Status& status) { return status.GetPayload(kOutsideMark).has_value(); }

StatusOr<UniqueFd> Roots::Open(const std::string& path, int flags) const {
  flags = WithAlways(flags);
  if (!restricted_) {
    UniqueFd fd(::open(path.c_str(), flags));
    if (!fd.ok()) return FileStatus(errno, Printable(path));
    return fd;
  }
  for (const Root& root : roots_) {
    if (!root.fd.ok()) continue;
    std::optional<std::string_view> rest = Below(path, root.path);
    if (!rest) rest = Below(path, root.canonical);
    if (!rest) continue;
    // It is the end of `path`, or a literal: a zero follows.
    UniqueFd fd(OpenBeneath(root.fd.get(), rest->data(), flags));
    if (fd.ok()) return fd;
    // A link with an absolute target, or a way out: to be judged by where it ends. So too where a
    // sandbox has no openat2.
    if (errno == EXDEV || errno == ELOOP || errno == EAGAIN || errno == ENOSYS || errno == EPERM)
      break;
    return FileStatus(errno, Printable(path));
  }
  return OpenChecked(path, flags);
}

StatusOr<UniqueFd> Roots::OpenChecked(const std::string& path, int flags) const {
  // The file is pinned without being opened, judged by its true name, and opened through the pin.
  // All failures before the judgement look alike, so that nobody learns what exists elsewhere.
  UniqueFd pin(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!pin.ok()) return Outside(path);
  const std::string name = NameOfFd(pin.get());
  bool inside = false;
  for (const Root& root : roots_) inside = inside || Below(name, root.canonical).has_value();
  if (!inside) return Outside(path);
  UniqueFd fd(::open(FdPath(pin.get()).c_str(), flags));
  if (!fd.ok()) return FileStatus(errno, Printable(path));
  return fd;
}

Status Roots::Stat(const std::string& path, struct stat& out) const {
  if (!restricted_) {
    return ::stat(path.c_str(), &out) == 0 ? absl::OkStatus() : FileStatus(errno, Printable(path));
  }
  ASSIGN_OR_RETURN(const UniqueFd fd, Open(path, O_PATH));
  return ::fstat(fd.get(), &out) == 0 ? absl::OkStatus() : FileStatus(errno, Printable(path));
}

StatusOr<std::string> Roots::Canonical(const std::string& path) const {
  if (!restricted_) {
    char name[PATH_MAX];
    if (::realpath(path.c_str(), name) == nullptr) return FileStatus(errno, Printable(path));
    return std::string(name);
  }
  ASSIGN_OR_RETURN(const UniqueFd fd, Open(path, O_PATH));
  std::string name = NameOfFd(fd.get());
  if (name.empty()) {
    return absl::UnavailableError(
        absl::StrCat(Printable(path), ": cannot be checked: /proc is not mounted"));
  }
  return name;
}

}  // namespace loaderd::dataset
