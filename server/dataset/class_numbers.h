// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/status.h"
#include "server/dataset/dataset.h"

namespace loaderd::dataset {

// The same samples in the same order with the labels that `class_to_idx` (name -> number) gives;
// class_names() are its names by number. It may name classes that the dataset lacks;
// kInvalidArgument where it lacks one of the dataset's or names one twice. Empty: the dataset
// itself. shared_ptr: the wrapper is one more user of what others read too.
StatusOr<std::shared_ptr<const Dataset>> WithClassNumbers(
    std::shared_ptr<const Dataset> dataset,
    const std::vector<std::pair<std::string, int64_t>>& class_to_idx);

}  // namespace loaderd::dataset
