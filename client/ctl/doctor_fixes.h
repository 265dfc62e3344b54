// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/ctl/doctor.h"

namespace loaderd::ctl {

// One place where a limit can be raised, with text to paste. Pure.
struct Fix {
  std::string place;  // "systemd unit", "Docker", ...
  std::string how;    // the file or command, and what takes it into effect
  std::string text;   // lines to paste, each with its line feed
};

// `wanted` in the resource's unit: descriptors, threads, bytes.
std::vector<Fix> FixesFor(Resource resource, uint64_t wanted);
std::string ResourceName(Resource resource);

}  // namespace loaderd::ctl
