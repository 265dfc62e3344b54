// SPDX-License-Identifier: Apache-2.0
#include "server/transform/image_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <variant>

#include "server/transform/resample_kernels.h"

namespace loaderd::transform {
namespace {
// Python's int(round(space / 2.0)): half to even. `space` is not negative.
int HalfRounded(int space) { return static_cast<int>(std::nearbyint(space / 2.0)); }

// One axis of a centred crop: `count` pixels from `from` on in the image go to `to` on in the
// result.
struct Span {
  int from = 0;
  int to = 0;
  int count = 0;
};

Span Center(int in, int out) {
  // Where torchvision pads, it pads half of what is missing, rounded down, before the image, and
  // the rest after it.
  if (out > in) return {.from = 0, .to = (out - in) / 2, .count = in};
  return {.from = HalfRounded(in - out), .to = 0, .count = out};
}
}  // namespace

void ImageMemory::Trim(size_t bytes) {
  for (ByteBuffer& buffer : buffers_) {
    if (buffer.capacity() > bytes) buffer.Free();
  }
  if (extra_.capacity() > bytes) extra_.Free();
  resampler_.Trim(bytes);
}

WideSize ResizedSize(const step::Resize& resize, int height, int width) {
  if (const Size* size = std::get_if<Size>(&resize.size)) return {size->height, size->width};
  // Python divides in double here and cuts; of numbers this small that is the integer quotient.
  int64_t shorter = std::get<int>(resize.size);
  int64_t longer = shorter * std::max(height, width) / std::min(height, width);
  if (resize.max_size && longer > *resize.max_size) {
    shorter = *resize.max_size * shorter / longer;
    longer = *resize.max_size;
  }
  if (width <= height) return {.height = longer, .width = shorter};
  return {.height = shorter, .width = longer};
}

StatusOr<Image> Resize(const Image& image, const step::Resize& resize, const ImageRules& rules,
                       ImageMemory& memory) {
  const WideSize wide = ResizedSize(resize, image.height, image.width);
  RETURN_IF_ERROR(CheckPixels(wide, rules.max_pixels, "the resized image"));
  const Size size = {static_cast<int>(wide.height), static_cast<int>(wide.width)};
  return CropAndResize(image, {.height = image.height, .width = image.width}, size, resize.filter,
                       rules, memory);
}

Box CenterBox(Size in, Size out) {
  return {.top = Center(in.height, out.height).from,
          .left = Center(in.width, out.width).from,
          .height = out.height,
          .width = out.width};
}

StatusOr<Image> CenterCrop(const Image& image, Size size, const ImageRules& rules,
                           ImageMemory& memory) {
  const Span y = Center(image.height, size.height);
  const Span x = Center(image.width, size.width);
  const Image middle =
      image.Crop({.top = y.from, .left = x.from, .height = y.count, .width = x.count});
  if (middle.height == size.height && middle.width == size.width) return middle;
  RETURN_IF_ERROR(CheckPixels({size.height, size.width}, rules.max_pixels, "the padded image"));
  const auto channels = static_cast<size_t>(image.channels);
  const size_t row_bytes = channels * static_cast<size_t>(size.width);
  uint8_t* const out = memory.Next().Resize(row_bytes * static_cast<size_t>(size.height)).data();
  std::memset(out, 0, row_bytes * static_cast<size_t>(size.height));
  for (int row = 0; row < y.count; ++row) {
    uint8_t* const to = out + static_cast<size_t>(y.to + row) * row_bytes;
    std::memcpy(to + static_cast<size_t>(x.to) * channels, middle.Row(row), middle.RowBytes());
  }
  return Contiguous(out, size.height, size.width, image.channels);
}

StatusOr<Image> CropAndResize(const Image& image, const Box& box, Size size, Filter filter,
                              const ImageRules& rules, ImageMemory& memory) {
  RETURN_IF_ERROR(CheckPixels({box.height, box.width}, rules.max_pixels, "the crop"));
  const Image crop = image.Crop(box);
  if (crop.height == size.height && crop.width == size.width) return crop;
  return memory.resampler().Resize(crop, size, filter, rules.reference, rules.max_pixels,
                                   memory.Next());
}

Image FlipHorizontally(const Image& image, ByteBuffer& out) {
  uint8_t* const to = out.Resize(image.Bytes()).data();
  MirrorRows(image, to);
  return Contiguous(to, image.height, image.width, image.channels);
}

Image ToGrey(const Image& image, int channels, ImageMemory& memory) {
  if (image.channels == 1 && channels == 1) return image;
  const size_t pixels = static_cast<size_t>(image.height) * static_cast<size_t>(image.width);
  uint8_t* to = memory.Next().Resize(pixels * static_cast<size_t>(channels)).data();
  const Image result = Contiguous(to, image.height, image.width, channels);
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* from = image.Row(y);
    for (int x = 0; x < image.width; ++x, from += image.channels) {
      const uint8_t grey = image.channels == 3 ? Luma(from) : *from;
      for (int c = 0; c < channels; ++c) *to++ = grey;
    }
  }
  return result;
}

}  // namespace loaderd::transform
