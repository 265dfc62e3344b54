// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "client/ctl/result.h"

namespace loaderd::ctl {

struct BenchOptions {
  std::string data;       // see DatasetOf
  std::string transform;  // see SetTransform; empty: RandomResizedCrop(size) and
                          // RandomHorizontalFlip, as uint8
  int64_t size = 224;
  int64_t batch = 64;
  double seconds = 10;  // of measuring, after as many batches as there are slots
  uint64_t epochs = 0;  // if > 0: so many whole epochs instead, from the first sample on
  bool own_daemon = false;
  uint32_t fleet_threads = 0;  // of the own daemon; 0: as it finds right
};

// Reads batches as fast as they come and tells the rate and what it cost.
int BenchCommand(const Shared& shared, const BenchOptions& options);

}  // namespace loaderd::ctl
