// SPDX-License-Identifier: Apache-2.0
#include "server/base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace loaderd {
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
std::vector<std::string> CgroupFolders(const std::string& root, const std::string& process,
                                       const std::string& controller) {
  std::ifstream file(absl::StrCat(root, "/proc/", process, "/cgroup"));
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

std::optional<double> CgroupCpus(const std::string& root, const std::string& process) {
  std::optional<double> cpus;
  for (const std::string& folder :
       CgroupFolders(root, process, "")) {  // cpu.max: "200000 100000" or "max 100000"
    const std::vector<std::string> parts =
        absl::StrSplit(FirstLine(absl::StrCat(folder, "/cpu.max")), ' ');
    double quota, period;
    if (parts.size() == 2 && absl::SimpleAtod(parts[0], &quota) &&
        absl::SimpleAtod(parts[1], &period) && period > 0) {
      Tighten(cpus, quota / period);
    }
  }
  for (const std::string& folder : CgroupFolders(root, process, "cpu")) {  // -1: no quota
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

std::optional<uint64_t> CgroupMemory(const std::string& root, const std::string& process) {
  // v1 says "no limit" by the greatest multiple of a page in 63 bits.
  constexpr uint64_t kNoLimit = 1ull << 62;
  std::optional<uint64_t> bytes;
  const auto look = [&](const char* controller, const char* name) {
    for (const std::string& folder : CgroupFolders(root, process, controller)) {
      uint64_t limit;
      if (absl::SimpleAtoi(FirstLine(absl::StrCat(folder, name)), &limit) && limit < kNoLimit)
        Tighten(bytes, limit);
    }
  };
  look("", "/memory.max");
  look("memory", "/memory.limit_in_bytes");
  return bytes;
}

std::optional<TaskLimit> CgroupTasks(const std::string& root, const std::string& process) {
  std::optional<TaskLimit> tightest;
  for (const char* controller : {"", "pids"}) {
    for (const std::string& folder : CgroupFolders(root, process, controller)) {
      TaskLimit limit;  // "max" is no number
      if (!absl::SimpleAtoi(FirstLine(absl::StrCat(folder, "/pids.max")), &limit.most)) continue;
      if (!absl::SimpleAtoi(FirstLine(absl::StrCat(folder, "/pids.current")), &limit.now)) continue;
      const auto left = [](const TaskLimit& l) { return l.most > l.now ? l.most - l.now : 0; };
      if (!tightest || left(limit) < left(*tightest)) tightest = limit;
    }
  }
  return tightest;
}

}  // namespace loaderd
