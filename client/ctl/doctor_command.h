// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "client/ctl/result.h"

namespace loaderd::ctl {

// Holds what the machine gives against what the daemon and its trainers need, and prints for each
// shortage how to cure it. kExitError when something falls short, else kExitOk, daemon or none.
int DoctorCommand(const Shared& shared, const std::string& config);

}  // namespace loaderd::ctl
