// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "server/base/cgroup.h"
#include "server/daemon/socket_path.h"

namespace loaderd::daemon {

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
