// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "client/cpp/src/fork_guard.h"
#include "client/cpp/src/proto_codec.h"
#include "loaderd/client.h"

namespace loaderd::client {

class Session;

struct FreeMemory {
  void operator()(uint8_t* data) const { std::free(data); }
};
using Memory = std::unique_ptr<uint8_t[], FreeMemory>;

// At least `bytes` zeroed bytes, 64-byte aligned. Throws std::bad_alloc.
Memory AllocateAligned(uint64_t bytes);

// A batch in the user's hands.
struct Batch : loaderd_batch {
  uint64_t generation = ForkGeneration();
  Session* session = nullptr;  // holds a reference; null when the data is in `memory`
  uint32_t slot = 0;
  Memory memory;
  std::vector<BadSample> bad_samples;
  std::vector<loaderd_bad_sample> bad_list;  // what `bad` points to; its texts are bad_samples'
};

}  // namespace loaderd::client
