// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/transform/image_decoder.h"

namespace loaderd::transform {

// GIF by giflib: the first frame, on the screen that it enlarges where it is larger; around it the
// transparent colour, or colour 0.
StatusOr<Decoded> DecodeGif(std::span<const uint8_t> encoded, const DecodeRules& rules,
                            ByteBuffer& pixels);

}  // namespace loaderd::transform
