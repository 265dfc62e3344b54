// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/doctor_fixes.h"

#include "absl/strings/str_cat.h"

namespace loaderd::ctl {
namespace {

constexpr char kUnit[] =
    "systemctl edit loaderd (a user daemon: systemctl --user edit loaderd), "
    "then systemctl restart loaderd";
constexpr char kLimitsConf[] =
    "/etc/security/limits.d/loaderd.conf, then log in anew. Of PAM's sessions only: services and "
    "containers never read it";

// One rlimit under the names that it has in each place.
struct Names {
  const char* systemd;  // after Limit and DefaultLimit
  const char* pam;
  uint64_t pam_unit;  // bytes of one in limits.conf
  const char* docker;
  const char* slurm;
};

std::string Section(const char* section, const std::string& line) {
  return absl::StrCat("[", section, "]\n", line, "\n");
}

std::string Compose(const std::string& lines) {
  return absl::StrCat("services:\n  trainer:\n", lines);
}

std::vector<Fix> SystemdFixes(const Names& names, const std::string& value,
                              const std::string& by_default) {
  const std::string manager =
      Section("Manager", absl::StrCat("DefaultLimit", names.systemd, "=", by_default));
  return {
      {"systemd unit", kUnit, Section("Service", absl::StrCat("Limit", names.systemd, "=", value))},
      {"systemd, all services",
       "/etc/systemd/system.conf.d/loaderd.conf, then systemctl daemon-reexec and restart what "
       "should have it",
       manager},
      {"systemd, all user services",
       "/etc/systemd/user.conf.d/loaderd.conf; the user's manager cannot give more than it has, so "
       "also: systemctl edit user@.service, with [Service] and Limit" +
           std::string(names.systemd) + "=" + value + "; then log in anew",
       manager}};
}

std::vector<Fix> LimitFixes(const Names& names, uint64_t wanted, const std::string& by_default) {
  const std::string value = absl::StrCat(wanted);
  const std::string both = absl::StrCat(value, ":", value);
  const std::string pam = absl::StrCat(wanted / names.pam_unit);
  std::vector<Fix> fixes = SystemdFixes(names, value, by_default);
  std::string lines;  // "*" is everybody but root
  for (const char* who : {"*", "root"}) {
    for (const char* kind : {"soft", "hard"}) {
      absl::StrAppend(&lines, who, " ", kind, " ", names.pam, " ", pam, "\n");
    }
  }
  fixes.push_back({"limits.conf", kLimitsConf, lines});
  fixes.push_back(
      {"Docker",
       "for one container; for all: default-ulimits in "
       "/etc/docker/daemon.json, then systemctl restart docker",
       absl::StrCat("docker run --ulimit ", names.docker, "=", both, " ...\n",
                    "{\"default-ulimits\": {\"", names.docker, "\": {\"Name\": \"", names.docker,
                    "\", \"Soft\": ", value, ", \"Hard\": ", value, "}}}\n")});
  fixes.push_back({"Compose", "compose.yaml",
                   Compose(absl::StrCat("    ulimits:\n      ", names.docker, ":\n        soft: ",
                                        value, "\n        hard: ", value, "\n"))});
  fixes.push_back(
      {"Kubernetes",
       "a pod has no field for it: containers get what the node's runtime is told. containerd: "
       "systemctl edit containerd, then systemctl restart containerd; CRI-O: "
       "/etc/crio/crio.conf.d/10-loaderd.conf, then systemctl restart crio. Pods that start after "
       "it have it",
       absl::StrCat(
           "# containerd\n", Section("Service", absl::StrCat("Limit", names.systemd, "=", value)),
           "# CRI-O\n",
           Section("crio.runtime",
                   absl::StrCat("default_ulimits = [\"", names.docker, "=", both, "\"]")))});
  fixes.push_back(
      {"Slurm",
       "on each node systemctl edit slurmd, then systemctl restart slurmd; and in "
       "slurm.conf, or the limit of the shell that submits goes with the job (for one "
       "job: srun --propagate=NONE), then scontrol reconfigure",
       absl::StrCat("# slurmd\n",
                    Section("Service", absl::StrCat("Limit", names.systemd, "=", value)),
                    "# slurm.conf\nPropagateResourceLimitsExcept=", names.slurm, "\n")});
  return fixes;
}

// pids.max of cgroups, which the same places set by names of their own.
void AddTaskFixes(const std::string& value, std::vector<Fix>& fixes) {
  fixes.push_back({"systemd unit, cgroup", kUnit, Section("Service", "TasksMax=" + value)});
  fixes.push_back({"systemd, users' slices, cgroup", "systemctl edit user-.slice",
                   Section("Slice", "TasksMax=" + value)});
  fixes.push_back({"Docker, cgroup", "for one container",
                   absl::StrCat("docker run --pids-limit ", value, " ...\n")});
  fixes.push_back(
      {"Compose, cgroup", "compose.yaml", Compose(absl::StrCat("    pids_limit: ", value, "\n"))});
  fixes.push_back({"Kubernetes, cgroup",
                   "a pod has no field for it: the kubelet's configuration, then systemctl restart "
                   "kubelet",
                   absl::StrCat("podPidsLimit: ", value, "\n")});
}

std::vector<Fix> MemoryFixes(uint64_t bytes) {
  const std::string value = absl::StrCat(bytes);
  const std::string mib = absl::StrCat((bytes + (1 << 20) - 1) >> 20);
  return {
      {"loaderd",
       "or leave it to the daemon, which then takes a quarter of what there is: its configuration, "
       "then systemctl restart loaderd",
       "limits { slot_bytes: 0 }\n"},
      {"systemd unit", kUnit, Section("Service", "MemoryMax=" + value)},
      {"Docker", "for one container", absl::StrCat("docker run --memory ", mib, "m ...\n")},
      {"Compose", "compose.yaml", Compose(absl::StrCat("    mem_limit: ", mib, "m\n"))},
      {"Kubernetes", "the container's part of the pod",
       absl::StrCat("resources:\n  limits:\n    memory: ", mib, "Mi\n")},
      {"Slurm", "for one job", absl::StrCat("sbatch --mem=", mib, "M ...\n")}};
}

std::vector<Fix> SysctlFixes(const char* name, uint64_t wanted) {
  return {{"kernel",
           "/etc/sysctl.d/90-loaderd.conf, then sysctl --system; on the host: containers cannot "
           "set it",
           absl::StrCat(name, " = ", wanted, "\n")}};
}

}  // namespace

std::vector<Fix> FixesFor(Resource resource, uint64_t wanted) {
  switch (resource) {
    case Resource::kFiles:
      // The default of others: a soft limit beyond 1,024 breaks programs that call select().
      return LimitFixes({"NOFILE", "nofile", 1, "nofile", "NOFILE"}, wanted,
                        absl::StrCat("1024:", wanted));
    case Resource::kTasks: {
      std::vector<Fix> fixes =
          LimitFixes({"NPROC", "nproc", 1, "nproc", "NPROC"}, wanted, absl::StrCat(wanted));
      AddTaskFixes(absl::StrCat(wanted), fixes);
      return fixes;
    }
    case Resource::kStack:
      return LimitFixes({"STACK", "stack", 1024, "stack", "STACK"}, wanted, absl::StrCat(wanted));
    case Resource::kMemory: return MemoryFixes(wanted);
    case Resource::kNrOpen: return SysctlFixes("fs.nr_open", wanted);
    case Resource::kFileMax: return SysctlFixes("fs.file-max", wanted);
    case Resource::kNothing: return {};
  }
  return {};
}

std::string ResourceName(Resource resource) {
  switch (resource) {
    case Resource::kFiles: return "descriptors (RLIMIT_NOFILE)";
    case Resource::kTasks: return "threads (RLIMIT_NPROC, pids.max)";
    case Resource::kStack: return "stack (RLIMIT_STACK)";
    case Resource::kMemory: return "memory";
    case Resource::kNrOpen: return "fs.nr_open";
    case Resource::kFileMax: return "fs.file-max";
    case Resource::kNothing: return "nothing";
  }
  return "nothing";
}

}  // namespace loaderd::ctl
