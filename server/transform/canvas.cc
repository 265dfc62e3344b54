// SPDX-License-Identifier: Apache-2.0
#include "server/transform/canvas.h"

#include <algorithm>
#include <cstring>

namespace loaderd::transform {
namespace {
// a * b / 255, rounded, as Pillow's MULDIV255.
int Scaled(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

uint8_t Clipped(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }
}  // namespace

Canvas::Canvas(ByteBuffer& pixels, const DecodeRules& rules, uint64_t width, uint64_t height,
               size_t room)
    : height_(static_cast<int>(height)),
      width_(static_cast<int>(width)),
      channels_(rules.mode == ImageMode::kL ? 1 : 3),
      wide_(rules.wide) {
  row_bytes_ = width * static_cast<size_t>(channels_);
  data_ = pixels.Resize(row_bytes_ * height + room).data();
}

void Canvas::PutGrey(int y, const uint8_t* in, size_t pixel_step) const {
  uint8_t* out = Row(y);
  for (int x = 0; x < width_; ++x, in += pixel_step) PutGreyPixel(out, *in);
}

void Canvas::PutRgb(int y, const uint8_t* in, SampleLayout layout) const {
  uint8_t* out = Row(y);
  if (layout.pixel_step == 3 && channels_ == 3) {
    std::memcpy(out, in, row_bytes_);
    return;
  }
  for (int x = 0; x < width_; ++x, in += layout.pixel_step) {
    const uint8_t rgb[3] = {in[0], in[layout.sample_step], in[2 * layout.sample_step]};
    PutPixel(out, rgb);
  }
}

void Canvas::PutPremultiplied(int y, const uint8_t* in, SampleLayout layout) const {
  uint8_t* out = Row(y);
  for (int x = 0; x < width_; ++x, in += layout.pixel_step) {
    const int alpha = in[3 * layout.sample_step];
    uint8_t rgb[3] = {0, 0, 0};
    for (size_t c = 0; c < 3 && alpha != 0; ++c) {
      rgb[c] = Clipped(in[c * layout.sample_step] * 255 / alpha);
    }
    PutPixel(out, rgb);
  }
}

void Canvas::PutCmyk(int y, const uint8_t* in, SampleLayout layout, bool is_inverted) const {
  uint8_t* out = Row(y);
  const uint8_t flip = is_inverted ? 0xFF : 0;
  for (int x = 0; x < width_; ++x, in += layout.pixel_step) {
    const int white = 255 - (in[3 * layout.sample_step] ^ flip);
    uint8_t rgb[3];
    for (size_t c = 0; c < 3; ++c) {
      rgb[c] = Clipped(white - Scaled(in[c * layout.sample_step] ^ flip, white));
    }
    PutPixel(out, rgb);
  }
}

void Canvas::PutIndexed(int y, const uint8_t* in, const Palette& palette, size_t pixel_step) const {
  uint8_t* out = Row(y);
  for (int x = 0; x < width_; ++x, in += pixel_step) PutPixel(out, palette[*in].data());
}

void Canvas::PutWide(int y, const uint8_t* in, bool is_big_endian) const {
  uint8_t* out = Row(y);
  for (int x = 0; x < width_; ++x, in += 2) {
    const uint8_t high = in[is_big_endian ? 0 : 1];
    const uint8_t low = in[is_big_endian ? 1 : 0];
    const uint8_t clipped = high != 0 ? 255 : low;
    PutGreyPixel(out, wide_ == WideMode::kClip ? clipped : high);
  }
}

void Unpack(const uint8_t* in, int bits, std::span<uint8_t> out) {
  const int mask = (1 << bits) - 1;
  int shift = 8;
  for (uint8_t& sample : out) {
    shift -= bits;
    sample = static_cast<uint8_t>((*in >> shift) & mask);
    if (shift == 0) {
      shift = 8;
      ++in;
    }
  }
}

}  // namespace loaderd::transform
