// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "server/base/byte_buffer.h"
#include "server/transform/image.h"

namespace loaderd::transform {

// The orientation in EXIF data (a TIFF directory, "Exif\0\0" before it or not) as Pillow finds it:
// whatever number stands there, and nullopt where none can be read. Hostile bytes are fine.
std::optional<int64_t> ExifOrientation(std::span<const uint8_t> exif);

// The same in XMP's text.
std::optional<int64_t> XmpOrientation(std::span<const uint8_t> xmp);

// EXIF's number where it stands, else XMP's; 1 for what is not 1 to 8.
int Orientation(std::span<const uint8_t> exif, std::span<const uint8_t> xmp);

// As PIL.ImageOps.exif_transpose turns an image of that orientation, 1 to 8; written to `memory`
// unless it is 1.
Image Upright(const Image& image, int orientation, ByteBuffer& memory);

}  // namespace loaderd::transform
