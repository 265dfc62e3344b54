// SPDX-License-Identifier: Apache-2.0
#include "server/base/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace loaderd {
namespace {

constexpr std::string_view kAnonymous = "anon_inode:";
constexpr std::string_view kMemfd = "/memfd:";
constexpr std::string_view kDeleted = " (deleted)";
constexpr rlim_t kLeastNumbers = 4096;
constexpr rlim_t kMostNumbers = 1 << 20;

bool IsMemfd(std::string_view link) { return link.starts_with(kMemfd) && link.ends_with(kDeleted); }

// "anon_inode:[eventpoll]" -> "epoll", "anon_inode:inotify" -> "inotify".
std::string AnonymousKind(std::string_view link) {
  std::string_view name = link.substr(kAnonymous.size());
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  if (name.empty()) return "other";
  return name == "eventpoll" ? "epoll" : std::string(name);
}

std::string PathKind(std::string_view link, mode_t type) {
  switch (type) {
    case S_IFDIR: return "directory";
    case S_IFCHR:
    case S_IFBLK: return "device";
    case S_IFIFO: return "pipe";
    default: break;
  }
  if (link.starts_with("/dev/shm/")) return "shm";
  return type == 0 && link.starts_with("/dev/") ? "device" : "file";
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The type of what a descriptor is open on. A plain stat could wait for a server that is gone.
mode_t TypeOf(const std::string& path) {
  struct statx facts;
  if (::statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC, STATX_TYPE, &facts) != 0) return 0;
  return facts.stx_mode & S_IFMT;
}

std::optional<std::string> ReadLink(const std::string& path) {
  char text[PATH_MAX];
  const ssize_t length = ::readlink(path.c_str(), text, sizeof(text));
  if (length < 0) return std::nullopt;
  return std::string(text, static_cast<size_t>(length));
}

std::string UserName(uid_t uid) {
  passwd entry;
  passwd* found = nullptr;
  char text[4096];
  if (::getpwuid_r(uid, &entry, text, sizeof(text), &found) != 0 || found == nullptr) return "";
  return absl::StrCat(" (", found->pw_name, ")");
}

// The real uid of a process: /proc/PID itself belongs to root where it may not be looked into.
std::optional<uid_t> OwnerOf(const std::string& process) {
  std::istringstream status(ReadAll(absl::StrCat("/proc/", process, "/status")));
  for (std::string line; std::getline(status, line);) {
    uint32_t uid = 0;
    if (std::istringstream words(line.starts_with("Uid:") ? line.substr(4) : ""); words >> uid) {
      return uid;
    }
  }
  return std::nullopt;
}

Status NoSuchProcess(const std::string& process) {
  return absl::NotFoundError(absl::StrCat("no process ", process,
                                          " is to be seen from here: it has ended, or /proc hides "
                                          "it (another PID namespace, hidepid)"));
}

Status NoRight(const std::string& process) {
  const std::optional<uid_t> owner = OwnerOf(process);
  if (!owner) return NoSuchProcess(process);
  if (*owner == ::getuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("process ", process,
                     " is yours, but protected (it has changed its user or "
                     "has capabilities): only root may see its descriptors"));
  }
  return absl::PermissionDeniedError(absl::StrCat("process ", process, " belongs to uid ", *owner,
                                                  UserName(*owner), ", and you are uid ",
                                                  ::getuid(),
                                                  ": only its user and root may see its "
                                                  "descriptors"));
}

// Calls `each` with the number and the link of every descriptor; 0, or an errno.
int ForEach(
    const std::string& process,
    const std::function<void(int, const std::string& path, const std::string& link)>& each) {
  const std::string folder = absl::StrCat("/proc/", process, "/fd");
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(folder.c_str()), ::closedir);
  if (listing == nullptr) return errno;
  const bool own = process == "self" || process == std::to_string(::getpid());
  errno = 0;
  while (const dirent* entry = ::readdir(listing.get())) {
    int number = 0;
    if (!absl::SimpleAtoi(entry->d_name, &number)) continue;
    if (own && number == ::dirfd(listing.get())) continue;
    const std::string path = absl::StrCat(folder, "/", number);
    const std::optional<std::string> link = ReadLink(path);
    if (link) each(number, path, *link);  // else closed meanwhile
    errno = 0;
  }
  return errno;
}

std::string KindAt(const std::string& path, const std::string& link) {
  return DescriptorKind(link, link.starts_with('/') && !IsMemfd(link) ? TypeOf(path) : 0);
}

std::map<uint64_t, std::string> SocketNames(const std::string& process) {
  const std::string folder = absl::StrCat("/proc/", process, "/net/");
  std::map<uint64_t, std::string> names;
  ParseUnixSockets(ReadAll(folder + "unix"), names);
  for (const char* protocol : {"tcp", "udp"}) {
    ParseInternetSockets(ReadAll(folder + protocol), protocol, names);
    ParseInternetSockets(ReadAll(folder + protocol + "6"), protocol, names);
  }
  return names;
}

uint64_t LimitValue(const std::string& word) {
  uint64_t value = 0;
  return absl::SimpleAtoi(word, &value) ? value : ResourceLimit::kUnlimited;
}

}  // namespace

std::string DescriptorKind(std::string_view link, mode_t type) {
  if (link.starts_with("socket:")) return "socket";
  if (link.starts_with("pipe:")) return "pipe";
  if (link.starts_with("pidfd:")) return "pidfd";
  if (link.starts_with(kAnonymous)) return AnonymousKind(link);
  if (IsMemfd(link)) return "memfd";
  return link.starts_with('/') ? PathKind(link, type) : "other";
}

std::string DescriptorTarget(std::string_view link) {
  if (IsMemfd(link)) return std::string(link.substr(1, link.size() - 1 - kDeleted.size()));
  if (link.starts_with('/')) return std::string(link);
  if (link.starts_with(kAnonymous)) return AnonymousKind(link);
  return std::string(link.substr(0, link.find(':')));  // "socket:[123]", "mnt:[456]"
}

StatusOr<std::vector<OpenDescriptor>> ListDescriptors(const std::string& process) {
  std::vector<OpenDescriptor> found;
  std::vector<std::pair<size_t, uint64_t>> sockets;  // place in found, inode
  const int error = ForEach(process, [&](int number, const std::string& path,
                                         const std::string& link) {
    uint64_t inode = 0;
    if (link.starts_with("socket:[") && absl::SimpleAtoi(link.substr(8, link.size() - 9), &inode)) {
      sockets.emplace_back(found.size(), inode);
    }
    found.push_back({number, KindAt(path, link), DescriptorTarget(link)});
  });
  if (error == ENOENT || error == ESRCH) return NoSuchProcess(process);
  if (error == EACCES || error == EPERM) return NoRight(process);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("read /proc/", process, "/fd"));
  if (!sockets.empty()) {
    const std::map<uint64_t, std::string> names = SocketNames(process);
    for (const auto& [place, inode] : sockets) {
      if (const auto name = names.find(inode); name != names.end()) {
        found[place].target = name->second;
      }
    }
  }
  return found;
}

std::map<std::string, uint64_t> CountOwnDescriptorsByKind() {
  std::map<std::string, uint64_t> counts;
  const int error = ForEach("self", [&](int, const std::string& path, const std::string& link) {
    ++counts[KindAt(path, link)];
  });
  rlimit limit = {};
  if (error != EMFILE && error != ENFILE) return counts;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return counts;
  // None is left to list the folder with; so each number is asked for.
  // (Some may be above a limit that was lowered.)
  const rlim_t end = std::clamp<rlim_t>(limit.rlim_cur, kLeastNumbers, kMostNumbers);
  for (rlim_t number = 0; number < end; ++number) {
    const std::string path = absl::StrCat("/proc/self/fd/", number);
    if (const std::optional<std::string> link = ReadLink(path)) ++counts[KindAt(path, *link)];
  }
  return counts;
}

uint64_t CountOwnDescriptors() {
  struct stat facts;
  if (::stat("/proc/self/fd", &facts) == 0 && facts.st_size > 0) {
    return static_cast<uint64_t>(facts.st_size);
  }
  uint64_t count = 0;
  ForEach("self", [&](int, const std::string&, const std::string&) { ++count; });
  return count;
}

StatusOr<ResourceLimit> ReadLimit(const std::string& process, std::string_view name) {
  std::istringstream limits(ReadAll(absl::StrCat("/proc/", process, "/limits")));
  for (std::string line; std::getline(limits, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    std::string soft;
    std::string hard;
    if (words >> soft >> hard) return ResourceLimit{LimitValue(soft), LimitValue(hard)};
  }
  return NoSuchProcess(process);
}

void ParseUnixSockets(std::string_view text, std::map<uint64_t, std::string>& names) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string skipped;
    for (int column = 0; column < 6; ++column) words >> skipped;
    uint64_t inode = 0;
    if (!(words >> inode)) continue;  // the heading
    std::string path;                 // may hold spaces
    std::getline(words >> std::ws, path);
    names[inode] = path.empty() ? "unix" : "unix " + path;
  }
}

void ParseInternetSockets(std::string_view text, const std::string& target,
                          std::map<uint64_t, std::string>& names) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string skipped;
    for (int column = 0; column < 9; ++column) words >> skipped;
    uint64_t inode = 0;
    if (words >> inode && inode != 0) names[inode] = target;
  }
}

}  // namespace loaderd
