// SPDX-License-Identifier: Apache-2.0
// Random augmentation as a pure function of (seed, epoch, sample index, place in the recipe):
// Philox4x32-10, from Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
// client/python/loaderd/random.py is the same in Python.
#pragma once

#include <array>
#include <cstdint>

namespace loaderd::transform {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

struct SampleKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t index = 0;
};

// Block `block` of four draws for the step at `place`: counter {index low, index high, epoch low,
// place << 16 | block}, key {seed low, seed high}. place and block are below 65536.
std::array<uint32_t, 4> Draw(const SampleKey& key, uint32_t place, uint32_t block);

// u in [0, 1): draw / 2^32, exact in double. An integer in [0, n): draw * n >> 32.
inline double Unit(uint32_t draw) { return draw * 0x1p-32; }
inline uint32_t Below(uint32_t draw, uint32_t n) {
  return static_cast<uint32_t>((uint64_t{draw} * n) >> 32);
}

struct Box {
  int top = 0, left = 0, height = 0, width = 0;
  friend bool operator==(const Box&, const Box&) = default;
};

// torchvision's RandomResizedCrop.get_params on a `width` x `height` image: up to ten attempts,
// attempt t with block t: target area = area * (scale0 + u0 * (scale1 - scale0)); ratio =
// exp(log(ratio0) + u1 * (log(ratio1) - log(ratio0))); w = round(sqrt(target * ratio)), h =
// round(sqrt(target / ratio)), half to even; taken when 0 < w <= width and 0 < h <= height, with
// top = Below(u2, height - h + 1) and left = Below(u3, width - w + 1). Else the central crop of the
// nearest allowed ratio, as torchvision does.
Box RandomResizedCropBox(const SampleKey& key, uint32_t place, int height, int width,
                         std::array<double, 2> scale, std::array<double, 2> ratio);

// Unit(draw 0 of block 0) < p.
bool RandomFlip(const SampleKey& key, uint32_t place, double p);

}  // namespace loaderd::transform
