// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "server/base/byte_buffer.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/image.h"

namespace loaderd::transform {

// Decodes a JPEG into `pixels`, with the result of Pillow's Image.open(file).convert("RGB" or "L"),
// bit for bit: accurate integer DCT, fancy chroma upsampling; colour becomes grey by way of RGB.
// What Pillow tolerates is tolerated (damaged entropy data, an early or missing end marker after
// complete rows, bytes after it), what it refuses is kDataLoss with the reason: no JPEG, truncated
// data, unsupported coding. So are an image of more than `max_pixels` (refused before memory is
// taken for it), a progressive one of more than 500 scans, and other than 1 or 3 components. The
// view lives in `pixels`. libjpeg takes its own working memory each time and gives it back. Any
// thread.
StatusOr<Image> DecodeJpeg(std::span<const uint8_t> encoded, ImageMode mode, uint64_t max_pixels,
                           ByteBuffer& pixels);

}  // namespace loaderd::transform
