// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "client/ctl/result.h"

namespace loaderd::ctl {

struct DescriptorsOptions {
  std::optional<int64_t> pid;     // none: the daemon
  std::optional<double> watch_s;  // report growth so often, until Ctrl-C or the process's end
};

// Open descriptors of the daemon, which tells them itself, or of a process of the caller's, by
// /proc. Prints to standard output and returns the exit code.
int DescriptorsCommand(const Shared& shared, const DescriptorsOptions& options);

}  // namespace loaderd::ctl
