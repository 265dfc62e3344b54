// SPDX-License-Identifier: Apache-2.0
#include "server/transform/random.h"

#include <algorithm>
#include <cmath>

namespace loaderd::transform {
namespace {
constexpr int kRounds = 10;
constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr uint32_t kCropAttempts = 10;

// Half to even, as Python's round(): the default rounding mode, which nothing here changes.
double Round(double value) { return std::nearbyint(value); }
}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::array<uint32_t, 4> Draw(const SampleKey& key, uint32_t place, uint32_t block) {
  return Philox4x32({static_cast<uint32_t>(key.index), static_cast<uint32_t>(key.index >> 32),
                     static_cast<uint32_t>(key.epoch), place << 16 | block},
                    {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

Box RandomResizedCropBox(const SampleKey& key, uint32_t place, int height, int width,
                         std::array<double, 2> scale, std::array<double, 2> ratio) {
  const double area = static_cast<double>(height) * width;
  const double log0 = std::log(ratio[0]);
  const double log1 = std::log(ratio[1]);
  for (uint32_t attempt = 0; attempt < kCropAttempts; ++attempt) {
    const std::array<uint32_t, 4> draw = Draw(key, place, attempt);
    const double target = area * (scale[0] + Unit(draw[0]) * (scale[1] - scale[0]));
    const double aspect = std::exp(log0 + Unit(draw[1]) * (log1 - log0));
    const double w = Round(std::sqrt(target * aspect));
    const double h = Round(std::sqrt(target / aspect));
    if (!(0 < w && w <= width && 0 < h && h <= height)) continue;
    Box box{.height = static_cast<int>(h), .width = static_cast<int>(w)};
    box.top = static_cast<int>(Below(draw[2], static_cast<uint32_t>(height - box.height) + 1));
    box.left = static_cast<int>(Below(draw[3], static_cast<uint32_t>(width - box.width) + 1));
    return box;
  }
  const double in_ratio = static_cast<double>(width) / static_cast<double>(height);
  const double least = std::min(ratio[0], ratio[1]);
  const double most = std::max(ratio[0], ratio[1]);
  Box box{.height = height, .width = width};
  if (in_ratio < least) {
    box.height = static_cast<int>(Round(width / least));
  } else if (in_ratio > most) {
    box.width = static_cast<int>(Round(height * most));
  }
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

bool RandomFlip(const SampleKey& key, uint32_t place, double p) {
  return Unit(Draw(key, place, 0)[0]) < p;
}

}  // namespace loaderd::transform
