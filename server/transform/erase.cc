// SPDX-License-Identifier: Apache-2.0
#include "server/transform/erase.h"

#include <cstring>
#include <optional>

namespace loaderd::transform {

void PlacedErasure::Apply(const SampleKey& key, int channels, int height, int width,
                          uint8_t* out) const {
  const Place at = {.key = key, .number = place};
  const std::optional<Box> box = ErasedBox(at, step, height, width);
  if (!box) return;
  const uint64_t bytes = DTypeBytes(later.dtype());
  Noise noise(at);
  uint64_t element = 0;
  for (int c = 0; c < channels; ++c) {
    const size_t given = step.value.size() == 1 ? 0 : static_cast<size_t>(c);
    const uint32_t fixed =
        step.value.empty() ? 0 : later.Bits(c, static_cast<float>(step.value[given]));
    for (int y = box->top; y < box->top + box->height; ++y) {
      const uint64_t first =
          (static_cast<uint64_t>(c) * static_cast<uint64_t>(height) + static_cast<uint64_t>(y)) *
              static_cast<uint64_t>(width) +
          static_cast<uint64_t>(box->left);
      uint8_t* to = out + first * bytes;
      for (int x = 0; x < box->width; ++x, to += bytes, ++element) {
        const uint32_t bits = step.value.empty() ? later.Bits(c, noise.At(element)) : fixed;
        if (bytes == 4) {
          std::memcpy(to, &bits, 4);
        } else if (bytes == 2) {
          const auto half = static_cast<uint16_t>(bits);
          std::memcpy(to, &half, 2);
        } else {
          *to = static_cast<uint8_t>(bits);
        }
      }
    }
  }
}

}  // namespace loaderd::transform
