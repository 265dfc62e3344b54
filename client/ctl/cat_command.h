// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/ctl/result.h"

namespace loaderd::ctl {

struct CatOptions {
  std::string data;       // see DatasetOf
  std::string transform;  // see SetTransform; empty: Resize(size) and CenterCrop(size)
  int64_t size = 224;
  int64_t batch = 16;
  std::vector<int64_t> indices;  // these samples instead of the first `batch`
  std::string out;               // folder for FIELD.npy
  std::string png;               // contact sheet
};

// One batch into files. Blocks until the dataset is indexed.
int CatCommand(const Shared& shared, const CatOptions& options);

}  // namespace loaderd::ctl
