// SPDX-License-Identifier: Apache-2.0
// Pillow's Image.transform for AFFINE and PERSPECTIVE, bit for bit.
#pragma once

#include <array>
#include <cstdint>

#include "server/base/spec.h"
#include "server/transform/image.h"

namespace loaderd::transform {

using Fill = std::array<uint8_t, 3>;  // a value a channel, for what lies outside the image

// Output (x, y) takes the input at (a x + b y + c, d x + e y + f).
using AffineMatrix = std::array<double, 6>;
// Output (x, y) takes the input at (a x + b y + c, d x + e y + f) / (g x + h y + 1).
using PerspectiveMatrix = std::array<double, 8>;

// Write `size.height` rows of `size.width` pixels without gaps at `out`, which is not the image's
// memory. `filter` is kNearest, kBilinear or kBicubic.
void WarpAffine(const Image& image, const AffineMatrix& matrix, Filter filter, const Fill& fill,
                Size size, uint8_t* out);
void WarpPerspective(const Image& image, const PerspectiveMatrix& matrix, Filter filter,
                     const Fill& fill, Size size, uint8_t* out);

}  // namespace loaderd::transform
