// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/util/json_util.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/channel.h"
#include "client/ctl/daemon_process.h"
#include "client/ctl/doctor.h"

namespace loaderd::ctl {
namespace {

uint64_t NumberIn(const char* path) {
  std::ifstream file(path);
  uint64_t number = 0;
  file >> number;
  return number;
}

Allowance AllowanceOf(const std::string& process, bool is_root) {
  const auto limit = [&](const char* name) {
    return ReadLimit(process, name).value_or(ResourceLimit());
  };
  Allowance allowance;
  allowance.files = limit("Max open files");
  allowance.tasks = limit("Max processes");
  allowance.locked = limit("Max locked memory");
  allowance.stack = limit("Max stack size");
  allowance.cgroup_tasks = CgroupTasks("", process);
  allowance.cgroup_memory = CgroupMemory("", process);
  allowance.is_root = is_root;
  return allowance;
}

// The number is the daemon's own, which in another PID namespace is somebody else's here.
bool IsTheDaemon(const v1::GetStatusResponse& status) {
  std::string name;
  std::ifstream(absl::StrCat("/proc/", status.pid(), "/comm")) >> name;
  return name == "loaderd" && ReadLimit(absl::StrCat(status.pid()), "Max open files").ok();
}

void AskDaemon(const std::string& socket, DoctorFacts& facts) {
  absl::StatusOr<AdminChannel> channel = AdminChannel::Connect(socket);
  if (!channel.ok()) {
    facts.daemon = std::string(channel.status().message());
    return;
  }
  absl::StatusOr<v1::GetStatusResponse> status = channel->GetStatus();
  if (!status.ok()) {
    facts.daemon = std::string(status.status().message());
    return;
  }
  facts.daemon = absl::StrCat("daemon at ", channel->socket(), ": process ", status->pid(),
                              " of uid ", status->uid(), ", ", status->mode());
  facts.needs = status->needs();
  facts.needs_of = "what its configuration needs";
  if (IsTheDaemon(*status)) {
    facts.daemon_allowance = AllowanceOf(absl::StrCat(status->pid()), status->uid() == 0);
  }
  facts.status = *std::move(status);
}

// The formula is the daemon's: its executable is asked.
void AskExecutable(const std::string& config, DoctorFacts& facts) {
  std::vector<std::string> arguments = {"--needs"};
  if (config.empty()) {
    arguments.emplace_back("--user");
    facts.needs_of = "what a user daemon needs by default";
  } else {
    arguments.insert(arguments.end(), {"--config", config});
    facts.needs_of = absl::StrCat("what ", config, " needs");
  }
  const absl::StatusOr<Finished> told = RunDaemon(arguments);
  if (!told.ok()) {
    facts.needs_of =
        absl::StrCat("what a daemon needs is not known: ", std::string(told.status().message()));
    return;
  }
  v1::Needs needs;
  if (told->exit_code != 0 ||
      !google::protobuf::util::JsonStringToMessage(told->output, &needs).ok()) {
    facts.needs_of = absl::StrCat("what a daemon needs is not known: ", told->output);
    return;
  }
  facts.needs = needs;
}

}  // namespace

DoctorFacts Gather(const std::string& socket, const std::string& config) {
  DoctorFacts facts;
  AskDaemon(socket, facts);
  if (!facts.status) AskExecutable(config, facts);
  facts.caller = AllowanceOf("self", geteuid() == 0);
  facts.nr_open = NumberIn("/proc/sys/fs/nr_open");
  facts.file_max = NumberIn("/proc/sys/fs/file-max");
  facts.files_now = NumberIn("/proc/sys/fs/file-nr");
  facts.memory_bytes = static_cast<uint64_t>(std::max(0l, sysconf(_SC_PHYS_PAGES))) *
                       static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  struct statvfs shm;
  if (statvfs("/dev/shm", &shm) == 0) {
    facts.shm_bytes = static_cast<uint64_t>(shm.f_blocks) * shm.f_frsize;
    facts.shm_free = static_cast<uint64_t>(shm.f_bavail) * shm.f_frsize;
  }
  return facts;
}

}  // namespace loaderd::ctl
