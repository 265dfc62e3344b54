// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "client/cpp/src/patience.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

// loaderd_open_options, checked and with their defaults.
struct Options {
  std::optional<std::string> socket;
  int64_t timeout_ms = -1;
  int64_t reconnect_ms = -1;
  loaderd_delivery delivery = LOADERD_MAPPED;
  bool no_start = false;
  std::string daemon;  // empty: to be looked for
  std::string client;
  std::string expected_order_fingerprint;  // empty: any
  void (*log)(const char* line) = nullptr;
  Patience::Waiting waiting = nullptr;
  void* waiting_arg = nullptr;

  // `given` may be null, or of an older, shorter struct.
  static Status Parse(const loaderd_open_options* given, Options* options);
  void Log(const std::string& line) const;
};

}  // namespace loaderd::client
