// SPDX-License-Identifier: Apache-2.0
// torchvision's colour functions on PIL images: what Pillow's ImageEnhance, ImageOps and HSV
// conversion compute, bit for bit. Each leaves the size as it is. Images have 1 or 3 channels.
#pragma once

#include "server/transform/image.h"
#include "server/transform/image_ops.h"

namespace loaderd::transform {

// `factor` is not negative; 1 leaves the image as it is.
Image AdjustBrightness(const Image& image, double factor, ImageMemory& memory);
Image AdjustContrast(const Image& image, double factor, ImageMemory& memory);
Image AdjustSaturation(const Image& image, double factor, ImageMemory& memory);
Image AdjustSharpness(const Image& image, double factor, ImageMemory& memory);
// `factor` is a part of the hue circle, -0.5 to 0.5. A grey image stays as it is.
Image AdjustHue(const Image& image, double factor, ImageMemory& memory);

// Keeps the upper `bits`, 1 to 8.
Image Posterize(const Image& image, int bits, ImageMemory& memory);
// Inverts what is not below `threshold`.
Image Solarize(const Image& image, double threshold, ImageMemory& memory);
Image Invert(const Image& image, ImageMemory& memory);
Image AutoContrast(const Image& image, ImageMemory& memory);
Image Equalize(const Image& image, ImageMemory& memory);

}  // namespace loaderd::transform
