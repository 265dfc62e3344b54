// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/transform/image_decoder.h"

namespace loaderd::transform {

// PBM, PGM and PPM, plain and raw (P1 to P6), samples scaled from their greatest value as Pillow
// does.
StatusOr<Decoded> DecodePnm(std::span<const uint8_t> encoded, const DecodeRules& rules,
                            ByteBuffer& pixels);

}  // namespace loaderd::transform
