// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace loaderd::rpc {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

uint64_t CountEntries(const char* folder) {
  std::error_code error;
  uint64_t count = 0;
  for (auto it = std::filesystem::directory_iterator(folder, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++count;
  }
  return count;
}

enum Kind { kSockets, kMemfds, kFiles, kEvents, kOther, kKinds };

Kind KindOf(std::string_view target) {
  if (target.starts_with("socket:")) return kSockets;
  if (target.starts_with("/memfd:")) return kMemfds;
  if (target.starts_with("anon_inode:")) return kEvents;
  if (target.starts_with("/")) return kFiles;
  return kOther;
}

}  // namespace

ProcessFacts ReadProcessFacts() {
  ProcessFacts facts;
  facts.pid = getpid();
  facts.descriptors = CountEntries("/proc/self/fd");
  facts.threads = static_cast<uint32_t>(CountEntries("/proc/self/task"));
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  uint64_t resident = 0;
  if (statm >> pages >> resident) {
    facts.resident_bytes = resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  facts.cpu_s = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  return facts;
}

std::vector<DescriptorCount> CountDescriptors() {
  std::array<uint64_t, kKinds> counts = {};
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    std::error_code gone;  // closed meanwhile
    const std::string target = std::filesystem::read_symlink(it->path(), gone).string();
    if (!gone) ++counts[KindOf(target)];
  }
  return {{"sockets", counts[kSockets], "two a connection, the listeners, the journal's"},
          {"memfds", counts[kMemfds], "one a mapped session"},
          {"files", counts[kFiles], "samples being read, the lock, standard streams"},
          {"events", counts[kEvents], "epoll, eventfd and timerfd of the event loops"},
          {"other", counts[kOther], "pipes"}};
}

}  // namespace loaderd::rpc
