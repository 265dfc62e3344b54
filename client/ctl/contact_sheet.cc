// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/contact_sheet.h"

#include <png.h>

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"

namespace loaderd::ctl {
namespace {

constexpr int64_t kGap = 2;              // pixels between two images
constexpr int64_t kMaxPixels = 1 << 28;  // of the sheet: 768 MiB in memory
constexpr uint8_t kGapColour = 0xFF;

bool IsChannels(int64_t n) { return n == 1 || n == 3; }

void CopyImage(const Images& images, int64_t which, uint8_t* to, int64_t row_bytes) {
  const uint8_t* image = images.data + which * images.image_stride;
  for (int64_t y = 0; y < images.height; ++y) {
    uint8_t* out = to + y * row_bytes;
    for (int64_t x = 0; x < images.width; ++x) {
      const uint8_t* pixel = image + y * images.row_stride + x * images.column_stride;
      for (int64_t c = 0; c < 3; ++c)
        *out++ = pixel[images.channels == 3 ? c * images.channel_stride : 0];
    }
  }
}

}  // namespace

absl::Status ImagesOf(const uint8_t* data, int64_t count, std::span<const int64_t> shape,
                      std::span<const int64_t> stride_bytes, Images& images) {
  if (shape.size() != 4 || stride_bytes.size() != 4 ||
      (!IsChannels(shape[3]) && !IsChannels(shape[1]))) {
    return absl::InvalidArgumentError(
        "a contact sheet wants images of 1 or 3 channels in 4 dimensions");
  }
  const bool channels_last = IsChannels(shape[3]);
  const size_t h = channels_last ? 1 : 2;
  const size_t c = channels_last ? 3 : 1;
  images = {.data = data,
            .count = count,
            .height = shape[h],
            .width = shape[h + 1],
            .channels = shape[c],
            .image_stride = stride_bytes[0],
            .row_stride = stride_bytes[h],
            .column_stride = stride_bytes[h + 1],
            .channel_stride = stride_bytes[c]};
  return absl::OkStatus();
}

absl::Status WriteContactSheet(const std::string& path, const Images& images) {
  if (images.count < 1)
    return absl::FailedPreconditionError(absl::StrCat(path, ": the batch has no images"));
  const auto columns =
      static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(images.count))));
  const int64_t rows = (images.count + columns - 1) / columns;
  const int64_t width = columns * (images.width + kGap) - kGap;
  const int64_t height = rows * (images.height + kGap) - kGap;
  if (height > kMaxPixels / width) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the sheet would have ", width, " x ", height, " pixels, and ",
                     kMaxPixels, " is the limit; ask for fewer or smaller images"));
  }
  const int64_t row_bytes = width * 3;
  std::vector<uint8_t> sheet(static_cast<size_t>(row_bytes * height), kGapColour);
  for (int64_t i = 0; i < images.count; ++i) {
    const int64_t left = i % columns * (images.width + kGap);
    const int64_t top = i / columns * (images.height + kGap);
    CopyImage(images, i, sheet.data() + top * row_bytes + left * 3, row_bytes);
  }
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(width);
  png.height = static_cast<png_uint_32>(height);
  png.format = PNG_FORMAT_RGB;
  if (png_image_write_to_file(&png, path.c_str(), 0, sheet.data(),
                              static_cast<png_int_32>(row_bytes), nullptr) == 0) {
    return absl::InternalError(absl::StrCat("write ", path, ": ", png.message));
  }
  return absl::OkStatus();
}

}  // namespace loaderd::ctl
