// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/transform/image_decoder.h"

namespace loaderd::transform {

// JPEG by libjpeg-turbo: accurate integer DCT, fancy chroma upsampling; colour becomes grey by way
// of RGB, and four components are taken for inverted CMYK or YCCK, with Adobe's marker and without.
// Damaged entropy data, an early or missing end marker after complete rows and bytes after it are
// tolerated, as Pillow does; a progressive file of more than 500 scans is refused.
StatusOr<Decoded> DecodeJpeg(std::span<const uint8_t> encoded, const DecodeRules& rules,
                             ByteBuffer& pixels);

}  // namespace loaderd::transform
