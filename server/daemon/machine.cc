// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/daemon/socket_path.h"

namespace loaderd::daemon {
namespace {

// The first line, without its end; empty when there is none.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The folders from the process's own cgroup up to the root of `controller`'s hierarchy (v2:
// controller is empty). In a container the own path may not be visible; the folders above it then
// still are, and missing files count for nothing.
std::vector<std::string> CgroupFolders(const std::string& root, const std::string& controller) {
  std::ifstream file(absl::StrCat(root, "/proc/self/cgroup"));
  std::string line;
  std::string path;
  std::vector<std::string> mounts;
  while (std::getline(file, line)) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) == controllers.end())
      continue;
    path = parts[2];
    if (controller.empty()) {
      mounts = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    } else {
      mounts = {absl::StrCat("/sys/fs/cgroup/", controller),
                absl::StrCat("/sys/fs/cgroup/", parts[1])};
    }
    break;
  }
  std::vector<std::string> folders;
  for (const std::string& mount : mounts) {
    std::string below = path == "/" ? "" : path;
    while (true) {
      folders.push_back(absl::StrCat(root, mount, below));
      if (below.empty()) break;
      const size_t slash = below.rfind('/');
      below.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return folders;
}

template <typename T>
void Tighten(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

}  // namespace

std::optional<double> CgroupCpus(const std::string& root) {
  std::optional<double> cpus;
  for (const std::string& folder :
       CgroupFolders(root, "")) {  // cpu.max: "200000 100000" or "max 100000"
    const std::vector<std::string> parts =
        absl::StrSplit(FirstLine(absl::StrCat(folder, "/cpu.max")), ' ');
    double quota, period;
    if (parts.size() == 2 && absl::SimpleAtod(parts[0], &quota) &&
        absl::SimpleAtod(parts[1], &period) && period > 0) {
      Tighten(cpus, quota / period);
    }
  }
  for (const std::string& folder : CgroupFolders(root, "cpu")) {  // -1: no quota
    double quota, period;
    if (absl::SimpleAtod(FirstLine(absl::StrCat(folder, "/cpu.cfs_quota_us")), &quota) &&
        quota > 0 &&
        absl::SimpleAtod(FirstLine(absl::StrCat(folder, "/cpu.cfs_period_us")), &period) &&
        period > 0) {
      Tighten(cpus, quota / period);
    }
  }
  return cpus;
}

std::optional<uint64_t> CgroupMemory(const std::string& root) {
  // v1 says "no limit" by the greatest multiple of a page in 63 bits.
  constexpr uint64_t kNoLimit = 1ull << 62;
  std::optional<uint64_t> bytes;
  const auto look = [&](const char* controller, const char* name) {
    for (const std::string& folder : CgroupFolders(root, controller)) {
      uint64_t limit;
      if (absl::SimpleAtoi(FirstLine(absl::StrCat(folder, name)), &limit) && limit < kNoLimit)
        Tighten(bytes, limit);
    }
  };
  look("", "/memory.max");
  look("memory", "/memory.limit_in_bytes");
  return bytes;
}

MachineFacts ReadMachine(bool user_mode) {
  MachineFacts machine;
  // cpu_set_t ends at 1,024 CPUs, and the call fails on a machine that has more; so ask with ever
  // more room.
  for (int room = 1024; room <= (1 << 20); room *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(room),
                                                               [](cpu_set_t* p) { CPU_FREE(p); });
    if (::sched_getaffinity(0, CPU_ALLOC_SIZE(room), set.get()) == 0) {
      machine.affinity_cpus = std::max(1, CPU_COUNT_S(CPU_ALLOC_SIZE(room), set.get()));
      break;
    }
    if (errno != EINVAL) break;
  }
  machine.quota_cpus = CgroupCpus("");
  machine.memory_limit = CgroupMemory("");
  machine.memory_bytes = static_cast<uint64_t>(std::max(0l, ::sysconf(_SC_PHYS_PAGES))) *
                         static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (user_mode) {
    const char* const named = std::getenv("LOADERD_SYSTEM_SOCKET");
    const std::string place(named != nullptr && *named != '\0' ? named : kSystemSocket);
    struct stat facts;
    machine.beside_system_daemon =
        ::stat(place.c_str(), &facts) == 0 ? S_ISSOCK(facts.st_mode) : errno == EACCES;
  }
  return machine;
}

std::string MountNamespace() {
  char name[64];
  const ssize_t length = ::readlink("/proc/self/ns/mnt", name, sizeof name);
  return length > 0 ? std::string(name, static_cast<size_t>(length)) : "";
}

Status RaiseDescriptorLimit(MachineFacts* machine, uint64_t* was) {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return ErrnoStatus(errno, "getrlimit RLIMIT_NOFILE");
  *was = limit.rlim_cur;
  if (limit.rlim_cur != limit.rlim_max) {
    const rlimit raised = {limit.rlim_max, limit.rlim_max};
    // A refusal (a sandbox without the call) leaves the soft limit, which is enough to go on.
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  machine->nofile_soft = limit.rlim_cur;
  machine->nofile_hard = limit.rlim_max;
  return absl::OkStatus();
}

}  // namespace loaderd::daemon
