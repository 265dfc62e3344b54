// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/result.h"

#include <cstdio>
#include <string>

#include "client/ctl/format.h"

namespace loaderd::ctl {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "loaderctl: %s\n", ForTerminal(std::string(status.message())).c_str());
  switch (status.code()) {
    case absl::StatusCode::kUnavailable: return kExitNoDaemon;
    case absl::StatusCode::kInvalidArgument: return kExitUsage;
    default: return kExitError;
  }
}

}  // namespace loaderd::ctl
