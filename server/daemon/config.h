// SPDX-License-Identifier: Apache-2.0
// The configuration file as plain, checked values. Protobuf ends here.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/base/log.h"
#include "server/base/status.h"
#include "server/daemon/socket_path.h"

namespace loaderd::daemon {

// Every field is within its range. 0 where config.proto says "default: from the machine";
// ComputeSizes settles those.
struct Config {
  SocketPaths paths;
  mode_t socket_mode = 0660;
  std::optional<gid_t> socket_group;

  uint32_t fleet_threads = 0;
  uint32_t reader_threads = 0;

  uint32_t max_sessions = 1000;
  uint32_t max_sessions_per_uid = 0;
  uint64_t slot_bytes = 0;
  uint64_t slot_bytes_per_uid = 0;
  std::optional<uint64_t> prefaulted_bytes;
  uint32_t max_connections = 0;
  uint32_t descriptor_reserve = 0;
  uint64_t max_pixels = 178956970;
  uint64_t max_decode_ms = 30000;
  uint64_t max_sample_bytes = 256ull << 20;
  uint32_t max_storage_failures = 100;
  uint32_t max_reads_in_flight = 0;

  std::vector<std::string> dataset_roots;  // absolute
  std::vector<std::pair<std::string, std::string>>
      datasets;  // name -> image folder; names are unique
  uint32_t stop_deadline_s = 10;
  std::string state_dir;  // absolute; empty: StateDir settles it
  uint64_t snapshot_bytes = 4ull << 30;
  LogLevel log_level = LogLevel::kInfo;
};

struct ConfigSource {
  bool user_mode = false;
  std::string file{};    // empty: defaults (user mode only)
  std::string socket{};  // --socket: in place of listen.socket
  std::string default_socket{kSystemSocket};
};

// Reads the file and, in system mode, datasets.d/*.txtpb in its folder. kInvalidArgument holds all
// errors, one a line.
StatusOr<Config> LoadConfig(const ConfigSource& source);

}  // namespace loaderd::daemon
