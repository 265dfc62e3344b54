// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "client/ctl/result.h"

namespace loaderd::ctl {

// Asks the daemon's executable what it thinks of `file`; its output and exit code are this
// command's.
int ConfigCheckCommand(const Shared& shared, const std::string& file);

}  // namespace loaderd::ctl
