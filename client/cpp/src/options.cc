// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/options.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace loaderd::client {

Status Options::Parse(const loaderd_open_options* given, Options* options) {
  loaderd_open_options full = {};
  full.timeout_ms = -1;
  full.reconnect_ms = -1;
  if (given != nullptr) {
    // The first version's struct ended behind waiting_arg.
    if (given->struct_size < offsetof(loaderd_open_options, waiting_arg) + sizeof(void*)) {
      return Error(LOADERD_INVALID_ARGUMENT,
                   "loaderd_open_options.struct_size is " + std::to_string(given->struct_size) +
                       "; it must be sizeof(loaderd_open_options), " + std::to_string(sizeof full));
    }
    std::memcpy(&full, given, std::min(given->struct_size, sizeof full));
  }
  if (full.delivery < LOADERD_MAPPED || full.delivery > LOADERD_MAPPED_OR_INLINE) {
    return Error(LOADERD_INVALID_ARGUMENT, "loaderd_open_options.delivery is " +
                                               std::to_string(full.delivery) +
                                               "; it must be one of enum loaderd_delivery");
  }
  if (full.socket != nullptr) options->socket = full.socket;
  options->timeout_ms = full.timeout_ms;
  options->reconnect_ms = full.reconnect_ms;
  options->delivery = static_cast<loaderd_delivery>(full.delivery);
  options->no_start = full.no_start != 0;
  if (full.daemon != nullptr) options->daemon = full.daemon;
  constexpr size_t kMaxClient = 128;
  options->client =
      std::string(full.client != nullptr ? full.client : program_invocation_short_name)
          .substr(0, kMaxClient);
  if (full.expected_order_fingerprint != nullptr) {
    options->expected_order_fingerprint = full.expected_order_fingerprint;
  }
  options->log = full.log;
  options->waiting = full.waiting;
  options->waiting_arg = full.waiting_arg;
  return Ok();
}

void Options::Log(const std::string& line) const {
  if (log != nullptr) {
    log(line.c_str());
  } else {
    std::fprintf(stderr, "loaderd: %s\n", line.c_str());
  }
}

}  // namespace loaderd::client
