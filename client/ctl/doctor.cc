// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/doctor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/ctl/format.h"

namespace loaderd::ctl {
namespace {

constexpr uint64_t kUnlimited = ResourceLimit::kUnlimited;
constexpr uint64_t kUsualFiles = 524288;  // as the units have it

std::string Count(uint64_t value) { return value == kUnlimited ? "unlimited" : FormatCount(value); }

std::string Bytes(uint64_t value) { return value == kUnlimited ? "unlimited" : FormatBytes(value); }

uint64_t FilesToSet(uint64_t need) {
  uint64_t files = kUsualFiles;
  while (files < need) files *= 2;
  return files;
}

class Judgement {
 public:
  explicit Judgement(const DoctorFacts& facts) : facts_(facts) {}

  std::vector<Check> All() {
    if (facts_.status) JudgeDaemonFiles();
    JudgeCallerFiles();
    JudgeKernelFiles();
    JudgeTasks();
    JudgeStack();
    JudgeMemory();
    TellTheRest();
    return std::move(checks_);
  }

 private:
  uint64_t FilesNeeded() const { return facts_.needs ? facts_.needs->descriptors() : 0; }
  uint64_t ThreadsNeeded() const { return facts_.needs ? facts_.needs->threads() : 0; }
  // The process that the daemon is, or would be a child of.
  const Allowance& Place() const {
    return facts_.daemon_allowance ? *facts_.daemon_allowance : facts_.caller;
  }
  const char* PlaceName() const { return facts_.daemon_allowance ? "the daemon" : "the caller"; }

  // `has` below `need` is a shortage of `resource`.
  Check& Add(std::string name, std::string what, uint64_t has, uint64_t need, Resource resource,
             uint64_t wanted, bool in_bytes = false) {
    Check& check = checks_.emplace_back();
    check.name = std::move(name);
    check.what = std::move(what);
    check.has = in_bytes ? Bytes(has) : Count(has);
    check.needs = need == 0 ? "-" : in_bytes ? Bytes(need) : Count(need);
    if (has < need) {
      check.verdict = Verdict::kShort;
      check.resource = resource;
      check.wanted = wanted;
    }
    return check;
  }

  void Tell(std::string name, std::string what, std::string has, std::string why) {
    Check& check = checks_.emplace_back();
    check.name = std::move(name);
    check.what = std::move(what);
    check.has = std::move(has);
    check.needs = "-";
    check.why = std::move(why);
  }

  std::string Arithmetic() const {
    return facts_.needs ? absl::StrCat(facts_.needs_of, ": ", facts_.needs->arithmetic())
                        : facts_.needs_of;
  }

  void JudgeDaemonFiles() {
    const v1::GetStatusResponse& status = *facts_.status;
    const uint64_t need = FilesNeeded();
    const uint64_t wanted = FilesToSet(need);
    Check& soft = Add("daemon.nofile.soft", "RLIMIT_NOFILE of the daemon, soft",
                      status.descriptor_soft_limit(), need, Resource::kFiles, wanted);
    soft.why = Arithmetic();
    for (const std::string& line : status.needs().lowered()) absl::StrAppend(&soft.why, "; ", line);
    Add("daemon.nofile.hard", "RLIMIT_NOFILE of the daemon, hard", status.descriptor_hard_limit(),
        need, Resource::kFiles, wanted)
        .why = "the daemon raises its soft limit to this one when it starts";
    // Four fifths: where the daemon itself warns.
    const uint64_t limit = status.descriptor_soft_limit();
    const uint64_t open = status.descriptors_open();
    const bool many = limit != kUnlimited && limit != 0 && open >= limit - limit / 5;
    Tell("daemon.nofile.open", "descriptors open in the daemon", Count(open),
         absl::StrCat(many ? "at or above" : "below", " 80 % of its limit"));
    if (!many) return;
    checks_.back().verdict = Verdict::kShort;
    checks_.back().needs = absl::StrCat("< ", Count(limit - limit / 5));
    checks_.back().resource = Resource::kFiles;
    checks_.back().wanted = FilesToSet(std::max(need, 2 * open));
  }

  void JudgeCallerFiles() {
    const ResourceLimit& files = facts_.caller.files;
    Check& soft = Add("caller.nofile.soft", "RLIMIT_NOFILE of the caller, soft", files.soft,
                      kTrainerDescriptors, Resource::kFiles, FilesToSet(FilesNeeded()));
    soft.why =
        "what Python, torch and a collective library want; loaderd takes one descriptor a loader";
    if (soft.verdict == Verdict::kShort && files.hard >= kTrainerDescriptors) {
      absl::StrAppend(&soft.why, "; in this shell `ulimit -Sn ", kTrainerDescriptors,
                      "` does, in a trainer loaderd.fds.raise_soft_limit()");
    }
    // A running daemon does not get it.
    const uint64_t need =
        facts_.status ? kTrainerDescriptors : std::max(kTrainerDescriptors, FilesNeeded());
    Check& hard = Add("caller.nofile.hard", "RLIMIT_NOFILE of the caller, hard", files.hard, need,
                      Resource::kFiles, FilesToSet(FilesNeeded()));
    hard.why = facts_.status ? "what the soft one can be raised to"
                             : absl::StrCat("a daemon started from here gets it. ", Arithmetic());
  }

  void JudgeKernelFiles() {
    const uint64_t need = std::max(kTrainerDescriptors, FilesNeeded());
    Add("kernel.nr_open", "fs.nr_open: the most that RLIMIT_NOFILE can be", facts_.nr_open, need,
        Resource::kNrOpen, std::max<uint64_t>(1 << 20, FilesToSet(need)));
    const uint64_t left =
        facts_.file_max > facts_.files_now ? facts_.file_max - facts_.files_now : 0;
    Add("kernel.file_max", "fs.file-max less fs.file-nr: files left on the machine", left, need,
        Resource::kFileMax, facts_.files_now + 4 * FilesToSet(need))
        .why = absl::StrCat(Count(facts_.files_now), " of ", Count(facts_.file_max), " are open");
  }

  void JudgeTasks() {
    const Allowance& place = Place();
    const uint64_t threads = ThreadsNeeded();
    const uint64_t wanted = std::max<uint64_t>(4096, 4 * threads);
    Add("nproc", absl::StrCat("RLIMIT_NPROC of ", PlaceName(), ", soft"),
        place.is_root ? kUnlimited : place.tasks.soft, threads, Resource::kTasks, wanted)
        .why =
        place.is_root ? "does not bind root" : "threads of all processes of this user count to it";
    if (!place.cgroup_tasks) return;
    const TaskLimit& limit = *place.cgroup_tasks;
    const uint64_t left = limit.most > limit.now ? limit.most - limit.now : 0;
    // The threads of a daemon that runs are counted already.
    const uint64_t has = facts_.daemon_allowance ? limit.most : left;
    Add("cgroup.pids", absl::StrCat("pids.max of the cgroup of ", PlaceName()), has, threads,
        Resource::kTasks, limit.now + wanted)
        .why = absl::StrCat(Count(limit.now), " of ", Count(limit.most), " are in use");
  }

  void JudgeStack() {
    Add("stack", absl::StrCat("RLIMIT_STACK of ", PlaceName(), ", soft: a thread's stack"),
        Place().stack.soft, kThreadStack, Resource::kStack, 8 << 20, /*in_bytes=*/true);
  }

  void JudgeMemory() {
    const Allowance& place = Place();
    const uint64_t limit = std::min(facts_.memory_bytes, place.cgroup_memory.value_or(kUnlimited));
    const uint64_t need = facts_.needs ? facts_.needs->slot_bytes() : 0;
    Add("memory",
        place.cgroup_memory ? absl::StrCat("memory.max of the cgroup of ", PlaceName())
                            : "memory of the machine",
        limit, need, Resource::kMemory, 2 * need, /*in_bytes=*/true)
        .why = "limits.slot_bytes, the memory for batches, has to fit";
  }

  void TellTheRest() {
    Tell("memlock", absl::StrCat("RLIMIT_MEMLOCK of ", PlaceName(), ", soft"),
         Bytes(Place().locked.soft), "loaderd locks no memory; drivers of GPUs and RDMA may");
    if (facts_.shm_bytes) {
      Tell("shm", "/dev/shm",
           absl::StrCat(Bytes(*facts_.shm_bytes), ", ", Bytes(facts_.shm_free), " free"),
           "loaderd does not use it: batches are in memfds, which its size does not bind");
    } else {
      Tell("shm", "/dev/shm", "absent", "loaderd does not use it: batches are in memfds");
    }
  }

  const DoctorFacts& facts_;
  std::vector<Check> checks_;
};

}  // namespace

std::vector<Check> Judge(const DoctorFacts& facts) { return Judgement(facts).All(); }

}  // namespace loaderd::ctl
