// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "server/base/spec.h"
#include "server/transform/image.h"
#include "server/transform/random_params.h"
#include "server/transform/tensor_table.h"

namespace loaderd::transform {

// RandomErasing at its place among the tensor steps. Those after it change what it erases with, as
// they do the rest of the tensor.
struct PlacedErasure {
  uint32_t place = 0;
  step::RandomErasing step;
  TensorChain later;

  // In a tensor of `channels` x `height` x `width` elements of later.dtype() at `out`, which may
  // have any alignment.
  void Apply(const SampleKey& key, int channels, int height, int width, uint8_t* out) const;
};

}  // namespace loaderd::transform
