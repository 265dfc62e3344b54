// SPDX-License-Identifier: Apache-2.0
// The image steps, one function each: torchvision's on PIL images. Recipe runs them in order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "server/base/byte_buffer.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/image.h"
#include "server/transform/image_decoder.h"
#include "server/transform/random.h"
#include "server/transform/recipe.h"
#include "server/transform/resample.h"

namespace loaderd::transform {

// Two image buffers in turn: a step reads the current image in one and writes its result in the
// other.
class ImageMemory {
 public:
  // The one without the current image, which becomes the current one. Called once by a step, and
  // only when it writes.
  ByteBuffer& Next() { return buffers_[current_ ^= 1]; }
  // The one that images are decoded in: always the same, or both would grow as large as an image.
  ByteBuffer& First() { return buffers_[current_ = 0]; }
  Resampler& resampler() { return resampler_; }
  // For what a step needs while it runs.
  ByteBuffer& extra() { return extra_; }
  std::unique_ptr<CodecState>& jpeg() { return jpeg_; }

  // Gives back what is larger than `bytes`, so that one huge image does not keep memory for ever.
  void Trim(size_t bytes);

 private:
  std::array<ByteBuffer, 2> buffers_;
  size_t current_ = 0;
  Resampler resampler_;
  ByteBuffer extra_;
  std::unique_ptr<CodecState> jpeg_;
};

struct Scratch::Impl {
  ImageMemory memory;
};

// What does not change between the steps of a recipe.
struct ImageRules {
  Reference reference = Reference::kPillow13;
  Fidelity fidelity = Fidelity::kExact;
  uint64_t max_pixels = 0;
};

// What torchvision's Resize makes of a `height` x `width` image. May be empty or huge: unchecked.
WideSize ResizedSize(const step::Resize& resize, int height, int width);

StatusOr<Image> Resize(const Image& image, const step::Resize& resize, const ImageRules& rules,
                       ImageMemory& memory);

// The middle of an image of size `in`, which is at least as large as `out`.
Box CenterBox(Size in, Size out);

// The middle of the image; where the image is smaller, it is the middle of the result, and zeros
// are around it.
StatusOr<Image> CenterCrop(const Image& image, Size size, const ImageRules& rules,
                           ImageMemory& memory);

// torchvision's resized_crop. `box` lies inside the image; kDataLoss when it is empty.
StatusOr<Image> CropAndResize(const Image& image, const Box& box, Size size, Filter filter,
                              const ImageRules& rules, ImageMemory& memory);

Image FlipHorizontally(const Image& image, ByteBuffer& out);

// `channels` is 1 or 3.
Image ToGrey(const Image& image, int channels, ImageMemory& memory);

}  // namespace loaderd::transform
