// SPDX-License-Identifier: Apache-2.0
// What a machine gives a daemon and a trainer, held against what they need. Judge is pure; Gather
// reads the machine and asks the daemon.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loaderd/v1/admin.pb.h"
#include "server/base/cgroup.h"
#include "server/base/descriptors.h"

namespace loaderd::ctl {

// What the kernel allows one process.
struct Allowance {
  ResourceLimit files;
  ResourceLimit tasks;  // RLIMIT_NPROC: of its user, all processes together
  ResourceLimit locked;
  ResourceLimit stack;
  std::optional<TaskLimit> cgroup_tasks;
  std::optional<uint64_t> cgroup_memory;
  bool is_root = false;  // RLIMIT_NPROC does not bind root
};

struct DoctorFacts {
  // What was found: "daemon at /run/...: process 7 of uid 0", or why there is none.
  std::string daemon;
  std::optional<v1::GetStatusResponse> status;  // of the daemon
  std::optional<Allowance> daemon_allowance;    // by /proc; none where it cannot be seen
  Allowance caller;
  std::optional<v1::Needs> needs;  // the daemon's word, else that of its executable
  std::string needs_of;            // whose needs, or why they are not known
  uint64_t nr_open = 0;            // fs.nr_open
  uint64_t file_max = 0;           // fs.file-max
  uint64_t files_now = 0;          // fs.file-nr: open on the whole machine
  uint64_t memory_bytes = 0;
  std::optional<uint64_t> shm_bytes;  // size of /dev/shm
  uint64_t shm_free = 0;
};

// What falls short; a Fix says how to raise it.
enum class Resource { kFiles, kTasks, kStack, kMemory, kNrOpen, kFileMax, kNothing };
enum class Verdict { kOk, kShort };

struct Check {
  std::string name;  // for scripts, e.g. "daemon.nofile.soft"
  std::string what;
  std::string has;
  std::string needs;  // "-": nothing of it
  Verdict verdict = Verdict::kOk;
  std::string why;  // of a shortage, or what is to be known
  Resource resource = Resource::kNothing;
  uint64_t wanted = 0;  // the number that a fix sets, in the resource's unit
};
std::vector<Check> Judge(const DoctorFacts& facts);

// `config`: the file whose needs are judged where no daemon is reached; empty: a user daemon's.
DoctorFacts Gather(const std::string& socket, const std::string& config);

// A trainer's own need, which is the frameworks', not loaderd's: Python, torch and a collective
// library have some hundreds open. It is what Linux gives by default.
inline constexpr uint64_t kTrainerDescriptors = 1024;
// Of a thread; the deepest, libtiff's and gRPC's, stay well below.
inline constexpr uint64_t kThreadStack = 1 << 20;

}  // namespace loaderd::ctl
