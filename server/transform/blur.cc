// SPDX-License-Identifier: Apache-2.0
#include "server/transform/blur.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace loaderd::transform {
namespace {
void FillWeights(float* weights, int count, double sigma) {
  const float half = static_cast<float>(count - 1) * 0.5F;
  float sum = 0;
  for (int i = 0; i < count; ++i) {
    const float x = (static_cast<float>(i) - half) / static_cast<float>(sigma);
    weights[i] = std::exp(-0.5F * (x * x));
    sum += weights[i];
  }
  for (int i = 0; i < count; ++i) weights[i] /= sum;
}

// `place` lies at most `size` - 1 outside.
int Mirrored(int place, int size) {
  const int within = std::abs(place);
  return within < size ? within : 2 * (size - 1) - within;
}

// One row of floats: `row` with `radius` pixels of reflection on each side, then filtered.
void BlurRow(const uint8_t* row, int width, int channels, const float* weights, int radius,
             float* wide, float* out) {
  for (int x = -radius; x < width + radius; ++x) {
    const uint8_t* const from = row + static_cast<ptrdiff_t>(Mirrored(x, width)) * channels;
    for (int c = 0; c < channels; ++c) *wide++ = from[c];
  }
  const ptrdiff_t values = static_cast<ptrdiff_t>(width) * channels;
  const float* const first = wide - values - ptrdiff_t{2} * radius * channels;
  std::fill(out, out + values, 0.0F);
  for (int k = 0; k <= 2 * radius; ++k) {
    const float* const from = first + static_cast<ptrdiff_t>(k) * channels;
    for (ptrdiff_t i = 0; i < values; ++i) out[i] += weights[k] * from[i];
  }
}
}  // namespace

StatusOr<Image> GaussianBlur(const Image& image, std::array<int, 2> kernel,
                             std::array<double, 2> sigma, ImageMemory& memory) {
  const int radius_x = kernel[0] / 2;
  const int radius_y = kernel[1] / 2;
  if (radius_x >= image.width || radius_y >= image.height) {
    return absl::DataLossError(absl::StrCat(
        "the image of ", image.width, " x ", image.height, " pixels is too small for a kernel of ",
        kernel[0], " x ", kernel[1], "; it must be larger than half of it"));
  }
  const size_t values = image.RowBytes();
  const size_t wide = values + static_cast<size_t>(2 * radius_x * image.channels);
  // The weights, one widened row, one row of sums, and the rows that one row of the result needs.
  const size_t weights = static_cast<size_t>(kernel[0]) + static_cast<size_t>(kernel[1]);
  const size_t floats = weights + wide + values * (1 + static_cast<size_t>(kernel[1]));
  auto* const floats_begin =
      reinterpret_cast<float*>(memory.extra().Resize(floats * sizeof(float)).data());
  float* const weights_x = floats_begin;
  float* const weights_y = weights_x + kernel[0];
  float* const widened = weights_y + kernel[1];
  float* const sums = widened + wide;
  float* const rows = sums + values;
  FillWeights(weights_x, kernel[0], sigma[0]);
  FillWeights(weights_y, kernel[1], sigma[1]);
  const auto row_at = [&](int y) { return rows + static_cast<size_t>(y % kernel[1]) * values; };
  uint8_t* out = memory.Next().Resize(image.Bytes()).data();
  const Image result = Contiguous(out, image.height, image.width, image.channels);
  int done = 0;  // rows filtered along x
  for (int y = 0; y < image.height; ++y, out += values) {
    for (; done < image.height && done <= y + radius_y; ++done) {
      BlurRow(image.Row(done), image.width, image.channels, weights_x, radius_x, widened,
              row_at(done));
    }
    std::fill(sums, sums + values, 0.0F);
    for (int k = 0; k < kernel[1]; ++k) {
      const float* const from = row_at(Mirrored(y + k - radius_y, image.height));
      const float weight = weights_y[k];
      for (size_t i = 0; i < values; ++i) sums[i] += weight * from[i];
    }
    for (size_t i = 0; i < values; ++i) {
      out[i] = static_cast<uint8_t>(std::clamp(std::nearbyint(sums[i]), 0.0F, 255.0F));
    }
  }
  return result;
}

}  // namespace loaderd::transform
