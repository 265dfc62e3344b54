// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/transform/image_decoder.h"

namespace loaderd::transform {

// BMP of 1, 4, 8, 16, 24 and 32 bits, plain, RLE4, RLE8 and the bit fields that Pillow knows.
StatusOr<Decoded> DecodeBmp(std::span<const uint8_t> encoded, const DecodeRules& rules,
                            ByteBuffer& pixels);

}  // namespace loaderd::transform
