// SPDX-License-Identifier: Apache-2.0
// Bytes to pixels as recipes do it, for tests of the codecs.
#pragma once

#include <cstdint>
#include <span>

#include "server/base/clock.h"
#include "server/transform/image_decoder.h"

namespace loaderd::transform {

inline StatusOr<Decoded> DecodeBy(std::span<const uint8_t> bytes, DecodeRules rules,
                                  ByteBuffer& pixels) {
  const DecodeDeadline deadline(Clock::Real(), 60000);
  rules.deadline = &deadline;
  return DecodeImage(bytes, rules, pixels);
}

inline StatusOr<Image> DecodePixels(std::span<const uint8_t> bytes, ImageMode mode,
                                    uint64_t max_pixels, ByteBuffer& pixels) {
  ASSIGN_OR_RETURN(const Decoded decoded,
                   DecodeBy(bytes, {.mode = mode, .max_pixels = max_pixels}, pixels));
  return decoded.image;
}

}  // namespace loaderd::transform
