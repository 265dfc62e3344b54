// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/transform/image_decoder.h"

namespace loaderd::transform {

// TIFF by libtiff: the first page in strips or tiles, grey of 1 to 16 bits, palette, RGB and CMYK
// of 8 or 16, JPEG's YCbCr. Turned upright always, as Pillow does.
StatusOr<Decoded> DecodeTiff(std::span<const uint8_t> encoded, const DecodeRules& rules,
                             ByteBuffer& pixels);

}  // namespace loaderd::transform
