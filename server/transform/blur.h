// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "server/base/status.h"
#include "server/transform/image.h"
#include "server/transform/image_ops.h"

namespace loaderd::transform {

// torchvision's gaussian_blur of an image: reflected at the borders, in float, rounded half to
// even. torch adds the products up in an order of its library's own, so a value may differ by 1
// where the sum falls between two. `kernel` is {width, height}, odd; `sigma` along x and y.
// kDataLoss when the image is too small to be reflected that far.
StatusOr<Image> GaussianBlur(const Image& image, std::array<int, 2> kernel,
                             std::array<double, 2> sigma, ImageMemory& memory);

}  // namespace loaderd::transform
