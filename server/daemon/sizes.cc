// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/sizes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace loaderd::daemon {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kMostDescriptors =
    1 << 20;  // an unlimited RLIMIT_NOFILE is no number to divide by

struct Cpus {
  uint32_t count = 1;
  std::string reason;
};

Cpus UsableCpus(const MachineFacts& machine) {
  Cpus cpus{machine.affinity_cpus, absl::StrCat("affinity ", machine.affinity_cpus)};
  if (machine.quota_cpus) {
    const double whole = std::clamp(std::ceil(*machine.quota_cpus), 1.0, 1048576.0);
    absl::StrAppend(&cpus.reason, absl::StrFormat(", cgroup quota %.2f CPUs", *machine.quota_cpus));
    cpus.count = std::min(cpus.count, static_cast<uint32_t>(whole));
  } else {
    absl::StrAppend(&cpus.reason, ", no cgroup quota");
  }
  if (machine.beside_system_daemon) {
    cpus.count = std::max(1u, cpus.count / 2);
    absl::StrAppend(&cpus.reason, ", half beside the system daemon");
  }
  return cpus;
}

// Lowers `value` to `most`, with a line that says so.
template <typename T>
void Lower(T& value, uint64_t most, const char* field, const char* each, uint64_t need,
           Sizes& sizes) {
  if (value <= most) return;
  sizes.lowered.push_back(
      absl::StrCat(field, " lowered from ", value, " to ", most, ": ", value, " need ", need,
                   " descriptors (", each, "), and RLIMIT_NOFILE ", sizes.descriptor_limit,
                   " - reserve ", sizes.descriptor_reserve, " leaves ", sizes.descriptors,
                   "; LimitNOFILE= of the unit or `ulimit -n` raises it"));
  value = static_cast<T>(most);
}

Status SplitDescriptors(const Config& config, const MachineFacts& machine, Sizes& sizes) {
  sizes.descriptor_limit = std::min(machine.nofile_soft, kMostDescriptors);
  sizes.descriptor_reserve = config.descriptor_reserve;
  if (sizes.descriptor_reserve == 0) {
    sizes.descriptor_reserve =
        std::max(kLeastReserve, std::min(kReserveBase + kReservePerCpu * machine.affinity_cpus,
                                         sizes.descriptor_limit / 2));
  }
  if (sizes.descriptor_limit < sizes.descriptor_reserve + kLeastBudget) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "RLIMIT_NOFILE ", sizes.descriptor_limit, " is too low: reserve ", sizes.descriptor_reserve,
        config.descriptor_reserve == 0 ? "" : " (limits.descriptor_reserve)",
        " + 1 reader + one trainer's ", kLeastBudget - 1, " = ",
        sizes.descriptor_reserve + kLeastBudget,
        "; raise LimitNOFILE= of the unit, or `ulimit -Hn` of the shell"));
  }
  sizes.descriptors = sizes.descriptor_limit - sizes.descriptor_reserve;
  return absl::OkStatus();
}

void SizeFleet(const Config& config, const MachineFacts& machine, Sizes& sizes) {
  const Cpus cpus = UsableCpus(machine);
  const uint64_t most_fleet = std::max<uint64_t>(1, sizes.descriptors / kPerDecodeThread);
  const uint64_t most_readers = std::max<uint64_t>(1, sizes.descriptors / kPerReader);
  if (config.fleet_threads != 0) {
    sizes.fleet_threads = config.fleet_threads;
    sizes.fleet_reason = absl::StrCat("fleet.threads ", config.fleet_threads);
  } else {
    sizes.fleet_threads = cpus.count;
    sizes.fleet_reason = cpus.reason;
  }
  const uint32_t wanted = sizes.fleet_threads;
  Lower(sizes.fleet_threads, most_fleet, "decode threads", "8 a thread", wanted * kPerDecodeThread,
        sizes);
  if (sizes.fleet_threads != wanted) {
    absl::StrAppend(&sizes.fleet_reason, ", lowered to ", sizes.fleet_threads, " by ",
                    sizes.descriptors, " descriptors");
  }
  sizes.reader_threads = config.reader_threads != 0
                             ? config.reader_threads
                             : std::clamp(2 * sizes.fleet_threads, uint32_t{4}, uint32_t{64});
  Lower(sizes.reader_threads, most_readers, "reader threads", "1 a thread, from a quarter of them",
        sizes.reader_threads * kPerReader, sizes);
  sizes.max_reads_in_flight =
      config.max_reads_in_flight != 0 ? config.max_reads_in_flight : 16 * sizes.reader_threads;
}

// The term that decides how much is needed beside the reserve, in words.
std::string LargestTerm(const Config& config, const Sizes& sizes) {
  const uint64_t readers = sizes.reader_threads;
  const uint64_t connections = config.max_connections * kPerConnection;
  const std::pair<uint64_t, std::string> terms[] = {
      {readers + sizes.max_sessions * kPerTrainer,
       absl::StrCat(readers, " readers with a file each + ", sizes.max_sessions, " sessions x ",
                    kPerTrainer, " (connection, its watch, segment)")},
      {readers + connections,
       absl::StrCat(readers, " readers with a file each + ", config.max_connections,
                    " connections x ", kPerConnection)},
      {sizes.fleet_threads * kPerDecodeThread,
       absl::StrCat(sizes.fleet_threads, " decode threads x ", kPerDecodeThread)},
      {readers * kPerReader, absl::StrCat(readers, " readers x ", kPerReader)}};
  return std::max_element(std::begin(terms), std::end(terms))->second;
}

}  // namespace

StatusOr<Sizes> ComputeSizes(const Config& config, const MachineFacts& machine) {
  Sizes sizes;
  RETURN_IF_ERROR(SplitDescriptors(config, machine, sizes));
  SizeFleet(config, machine, sizes);

  const uint64_t for_trainers = sizes.descriptors - sizes.reader_threads;
  const uint64_t connections = std::max<uint64_t>(1, for_trainers / kPerConnection);
  sizes.max_connections = static_cast<uint32_t>(connections);
  if (config.max_connections != 0) {
    sizes.max_connections = config.max_connections;
    Lower(sizes.max_connections, connections, "limits.max_connections", "2 each",
          sizes.max_connections * kPerConnection, sizes);
  }
  sizes.max_sessions = config.max_sessions;
  Lower(sizes.max_sessions, std::max<uint64_t>(1, for_trainers / kPerTrainer),
        "limits.max_sessions", "3 each: connection, its watch, segment",
        sizes.max_sessions * kPerTrainer, sizes);
  sizes.max_sessions_per_uid = config.max_sessions_per_uid == 0
                                   ? 0
                                   : std::min(config.max_sessions_per_uid, sizes.max_sessions);

  const uint64_t memory = machine.memory_limit
                              ? std::min(machine.memory_bytes, *machine.memory_limit)
                              : machine.memory_bytes;
  sizes.slot_bytes = config.slot_bytes != 0 ? config.slot_bytes : memory / 4;
  sizes.slot_bytes_per_uid =
      config.slot_bytes_per_uid == 0 ? 0 : std::min(config.slot_bytes_per_uid, sizes.slot_bytes);
  const uint64_t ready =
      std::min(config.prefaulted_bytes.value_or(64 * kMiB), sizes.slot_bytes / 16);
  sizes.prefaulted_bytes = ready / kMiB * kMiB;
  return sizes;
}

Needs ComputeNeeds(const Config& config, const MachineFacts& machine) {
  MachineFacts given = machine;
  const auto enough = [&](uint64_t limit) {
    given.nofile_soft = limit;
    const StatusOr<Sizes> sizes = ComputeSizes(config, given);
    return sizes.ok() && sizes->lowered.empty();
  };
  // Bisects the formula itself, so that it is written once.
  uint64_t least = 0;
  for (uint64_t most = kMostDescriptors; least < most;) {
    const uint64_t middle = least + (most - least) / 2;
    if (enough(middle)) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  Needs needs;
  needs.descriptors = least;
  given.nofile_soft = least;
  const StatusOr<Sizes> sizes = ComputeSizes(config, given);
  if (!sizes.ok()) {  // a reserve as large as everything
    needs.arithmetic = MessageOf(sizes.status());
    return needs;
  }
  needs.arithmetic = absl::StrCat("reserve ", sizes->descriptor_reserve, " + ",
                                  LargestTerm(config, *sizes), " = ", least);
  if (!enough(least)) {
    needs.arithmetic = absl::StrCat("more than ", kMostDescriptors,
                                    ", beyond which loaderd counts no descriptors");
  }
  needs.threads = sizes->fleet_threads + sizes->reader_threads +
                  std::min(sizes->fleet_threads, kMostIndexThreads) + kOwnThreads +
                  kOwnThreadsPerCpu * machine.affinity_cpus;
  needs.slot_bytes = sizes->slot_bytes;
  return needs;
}

}  // namespace loaderd::daemon
