// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "server/base/descriptors.h"

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

}  // namespace

ProcessFacts ReadProcessFacts() {
  ProcessFacts facts;
  facts.pid = getpid();
  facts.descriptors = CountOwnDescriptors();
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

std::string DescriptorPurpose(std::string_view kind) {
  if (kind == "socket") return "two a connection, the listeners, the journal's";
  if (kind == "memfd") return "one a mapped session";
  if (kind == "file") return "samples being read, the lock, the log";
  if (kind == "directory") return "folders being indexed";
  if (kind == "epoll" || kind == "eventfd" || kind == "timerfd") return "the event loops";
  if (kind == "pidfd") return "trainers that may hold a segment";
  return "";
}

}  // namespace loaderd::rpc
