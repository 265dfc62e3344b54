// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "server/base/spec.h"
#include "server/base/status.h"

namespace loaderd::v1 {
class BatchStep;
}  // namespace loaderd::v1

namespace loaderd::plan {

// The step on whole batches at `path`. kInvalidArgument with the path of the first field that is
// wrong.
StatusOr<BatchStep> ParseBatchStep(const std::string& path, const v1::BatchStep& spec);

}  // namespace loaderd::plan
