// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/repeated_field.h>

#include <string>
#include <vector>

#include "server/base/spec.h"
#include "server/base/status.h"

namespace loaderd::v1 {
class TransformStep;
}  // namespace loaderd::v1

namespace loaderd::plan {

// The steps at `path`, with those that they hold. kInvalidArgument with the path of the first field
// that is wrong.
StatusOr<std::vector<Step>> ParseSteps(
    const std::string& path, const google::protobuf::RepeatedPtrField<v1::TransformStep>& specs);

}  // namespace loaderd::plan
