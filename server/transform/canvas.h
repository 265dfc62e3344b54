// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "server/base/byte_buffer.h"
#include "server/base/spec.h"
#include "server/transform/image.h"
#include "server/transform/image_decoder.h"

namespace loaderd::transform {

// Colours of indexed pixels; what a file leaves out is black, as in Pillow.
using Palette = std::array<std::array<uint8_t, 3>, 256>;

// How samples lie in a decoder's row.
struct SampleLayout {
  size_t pixel_step = 1;   // bytes from one pixel to the next
  size_t sample_step = 1;  // and from one sample of a pixel to the next
};

// Where a decoder puts its rows, each converted as Pillow's convert("RGB") or convert("L") does.
// Trivially destructible, so that codecs which longjmp may use it. Memory is the ByteBuffer's.
class Canvas {
 public:
  // `room`: bytes behind the image for the decoder's own rows. The image has been checked.
  Canvas(ByteBuffer& pixels, const DecodeRules& rules, uint64_t width, uint64_t height,
         size_t room);

  int height() const { return height_; }
  int width() const { return width_; }
  uint8_t* room() const { return data_ + row_bytes_ * static_cast<size_t>(height_); }
  uint8_t* Row(int y) const { return data_ + row_bytes_ * static_cast<size_t>(y); }
  size_t row_bytes() const { return row_bytes_; }
  bool is_grey() const { return channels_ == 1; }
  Image image() const { return Contiguous(data_, height_, width_, channels_); }

  void PutGrey(int y, const uint8_t* in, size_t pixel_step = 1) const;
  void PutRgb(int y, const uint8_t* in, SampleLayout layout = {3, 1}) const;
  // RGB multiplied by the alpha that follows it.
  void PutPremultiplied(int y, const uint8_t* in, SampleLayout layout) const;
  void PutCmyk(int y, const uint8_t* in, SampleLayout layout, bool is_inverted) const;
  void PutIndexed(int y, const uint8_t* in, const Palette& palette, size_t pixel_step = 1) const;
  // 16-bit grey.
  void PutWide(int y, const uint8_t* in, bool is_big_endian) const;

 private:
  void PutPixel(uint8_t*& out, const uint8_t* rgb) const {
    if (channels_ == 1) {
      *out++ = Luma(rgb);
    } else {
      for (int c = 0; c < 3; ++c) *out++ = rgb[c];
    }
  }
  void PutGreyPixel(uint8_t*& out, uint8_t grey) const {
    for (int c = 0; c < channels_; ++c) *out++ = grey;
  }

  uint8_t* data_;
  size_t row_bytes_;
  int height_;
  int width_;
  int channels_;
  WideMode wide_;
};

// Spreads samples of 1, 2 or 4 bits, the first in the highest bits, over a byte each.
void Unpack(const uint8_t* in, int bits, std::span<uint8_t> out);

}  // namespace loaderd::transform
