// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/transform/random.h"

namespace loaderd::transform {

// A view of 8-bit pixels, channels interleaved (1: grey, 3: RGB). The memory is the Scratch's and
// stays valid until the step after the next one writes. Rows are `stride` bytes apart, so that a
// crop costs nothing.
struct Image {
  const uint8_t* data = nullptr;
  size_t stride = 0;
  int height = 0;
  int width = 0;
  int channels = 0;

  const uint8_t* Row(int y) const { return data + static_cast<size_t>(y) * stride; }
  size_t RowBytes() const { return static_cast<size_t>(width) * static_cast<size_t>(channels); }
  size_t Bytes() const { return RowBytes() * static_cast<size_t>(height); }

  // `box` lies inside the image.
  Image Crop(const Box& box) const {
    const size_t left = static_cast<size_t>(box.left) * static_cast<size_t>(channels);
    return {.data = Row(box.top) + left,
            .stride = stride,
            .height = box.height,
            .width = box.width,
            .channels = channels};
  }
};

// `data` as an image without gaps between its rows.
inline Image Contiguous(const uint8_t* data, int height, int width, int channels) {
  return {.data = data,
          .stride = static_cast<size_t>(width) * static_cast<size_t>(channels),
          .height = height,
          .width = width,
          .channels = channels};
}

// Pillow's convert("L"), by the weights of ITU-R 601-2 in 16 bits.
inline uint8_t Luma(const uint8_t* rgb) {
  return static_cast<uint8_t>((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u) >> 16);
}

}  // namespace loaderd::transform
