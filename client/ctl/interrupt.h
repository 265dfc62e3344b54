// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM as a question, for the commands that have something to clean up.
#pragma once

namespace loaderd::ctl {

// From now on the two signals interrupt blocking calls (EINTR) and are remembered.
void CatchInterrupts();
bool Interrupted();

}  // namespace loaderd::ctl
