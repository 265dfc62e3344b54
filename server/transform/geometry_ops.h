// SPDX-License-Identifier: Apache-2.0
// torchvision's geometric functions on PIL images, bit for bit.
#pragma once

#include <array>
#include <optional>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/image.h"
#include "server/transform/image_ops.h"
#include "server/transform/warp.h"

namespace loaderd::transform {

using Point = std::array<double, 2>;  // x, y
using Corners =
    std::array<std::array<int, 2>, 4>;  // top left, top right, bottom right, bottom left

Image FlipVertically(const Image& image, ImageMemory& memory);

// `fill` counts with PadMode::kConstant only. kDataLoss when the result would be too large.
StatusOr<Image> Pad(const Image& image, const Padding& padding, PadMode mode, const Fill& fill,
                    const ImageRules& rules, ImageMemory& memory);

// `angle` in degrees, counter-clockwise, about `center` or the image's; with `expand` the result is
// as large as the turned image. kDataLoss when that is too large.
StatusOr<Image> Rotate(const Image& image, double angle, Filter filter, bool expand,
                       const std::optional<Point>& center, const Fill& fill,
                       const ImageRules& rules, ImageMemory& memory);

// Degrees clockwise, pixels; `scale` is greater than 0.
struct AffineParams {
  double angle = 0;
  std::array<int, 2> translate = {0, 0};  // x, y
  double scale = 1;
  std::array<double, 2> shear = {0, 0};  // along x, along y
  friend bool operator==(const AffineParams&, const AffineParams&) = default;
};
Image Affine(const Image& image, const AffineParams& params, Filter filter,
             const std::optional<Point>& center, const Fill& fill, ImageMemory& memory);

// `from` goes to `to`. torchvision solves for the matrix in double and rounds it to float; so does
// this, by another elimination, so where the rounding hangs on the last bit the two may differ.
PerspectiveMatrix PerspectiveCoefficients(const Corners& from, const Corners& to);
Image Perspective(const Image& image, const Corners& from, const Corners& to, Filter filter,
                  const Fill& fill, ImageMemory& memory);

}  // namespace loaderd::transform
