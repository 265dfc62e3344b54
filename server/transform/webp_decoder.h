// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/transform/image_decoder.h"

namespace loaderd::transform {

// WebP by libwebp, lossy and lossless, alpha dropped; of an animation the first frame, on black.
// Cannot be stopped: the limit on pixels bounds its time.
StatusOr<Decoded> DecodeWebp(std::span<const uint8_t> encoded, const DecodeRules& rules,
                             ByteBuffer& pixels);

}  // namespace loaderd::transform
