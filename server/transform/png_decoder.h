// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/transform/image_decoder.h"

namespace loaderd::transform {

// PNG by libpng: alpha and transparency are dropped, of 16-bit colour the high byte stays. All rows
// must be there; a wrong checksum is an error.
StatusOr<Decoded> DecodePng(std::span<const uint8_t> encoded, const DecodeRules& rules,
                            ByteBuffer& pixels);

}  // namespace loaderd::transform
