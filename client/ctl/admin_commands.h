// SPDX-License-Identifier: Apache-2.0
// The commands that ask a running daemon. Each prints to standard output and returns the exit code.
#pragma once

#include "client/ctl/result.h"

namespace loaderd::ctl {

int StatusCommand(const Shared& shared);
int SessionsCommand(const Shared& shared);
int DatasetsCommand(const Shared& shared);
int DrainCommand(const Shared& shared);

}  // namespace loaderd::ctl
