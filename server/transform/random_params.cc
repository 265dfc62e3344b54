// SPDX-License-Identifier: Apache-2.0
#include "server/transform/random_params.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace loaderd::transform {
namespace {
constexpr uint32_t kEraseAttempts = 10;
constexpr uint32_t kNoiseBlock = kEraseAttempts + 1;

double Between(uint32_t draw, double least, double most) {
  return least + Unit(draw) * (most - least);
}
double Between(uint32_t draw, const step::Interval& interval) {
  return Between(draw, interval[0], interval[1]);
}
int BelowInt(uint32_t draw, int n) {
  return static_cast<int>(Below(draw, static_cast<uint32_t>(n)));
}
}  // namespace

Box RandomCropBox(const Place& place, int height, int width, Size size) {
  const auto draw = place.Block(0);
  return {.top = BelowInt(draw[0], height - size.height + 1),
          .left = BelowInt(draw[1], width - size.width + 1),
          .height = size.height,
          .width = size.width};
}

double RotationAngle(const Place& place, const step::RandomRotation& step) {
  return Between(place.Block(0)[0], step.degrees);
}

AffineParams AffineOf(const Place& place, const step::RandomAffine& step, int height, int width) {
  const auto draw = place.Block(0);
  AffineParams params = {.angle = Between(draw[0], step.degrees)};
  if (step.translate) {
    const std::array<double, 2> most = {(*step.translate)[0] * width,
                                        (*step.translate)[1] * height};
    for (size_t axis = 0; axis < 2; ++axis) {
      params.translate[axis] =
          static_cast<int>(std::nearbyint(Between(draw[axis + 1], -most[axis], most[axis])));
    }
  }
  if (step.scale) params.scale = Between(draw[3], *step.scale);
  const auto shear = place.Block(1);
  if (step.shear_x) params.shear[0] = Between(shear[0], *step.shear_x);
  if (step.shear_y) params.shear[1] = Between(shear[1], *step.shear_y);
  return params;
}

std::optional<Corners> PerspectiveCorners(const Place& place, const step::RandomPerspective& step,
                                          int height, int width) {
  if (!place.Happens(step.p)) return std::nullopt;
  const int dx = static_cast<int>(step.distortion_scale * (width / 2));
  const int dy = static_cast<int>(step.distortion_scale * (height / 2));
  const auto left = [&](uint32_t draw) { return BelowInt(draw, dx + 1); };
  const auto top = [&](uint32_t draw) { return BelowInt(draw, dy + 1); };
  const auto right = [&](uint32_t draw) { return width - dx - 1 + BelowInt(draw, dx + 1); };
  const auto bottom = [&](uint32_t draw) { return height - dy - 1 + BelowInt(draw, dy + 1); };
  const auto upper = place.Block(1);
  const auto lower = place.Block(2);
  Corners corners;
  corners[0] = {left(upper[0]), top(upper[1])};
  corners[1] = {right(upper[2]), top(upper[3])};
  corners[2] = {right(lower[0]), bottom(lower[1])};
  corners[3] = {left(lower[2]), bottom(lower[3])};
  return corners;
}

JitterParams JitterOf(const Place& place, const step::ColorJitter& step) {
  JitterParams params;
  std::array<uint8_t, 4> order = {0, 1, 2, 3};
  Shuffle(place, order);
  const auto draw = place.Block(1);
  const std::array<const std::optional<step::Interval>*, 4> intervals = {
      &step.brightness, &step.contrast, &step.saturation, &step.hue};
  for (size_t i = 0; i < 4; ++i) {
    params.order[i] = order[i];
    if (*intervals[i]) params.factors[i] = Between(draw[i], **intervals[i]);
  }
  return params;
}

double BlurSigma(const Place& place, const step::GaussianBlur& step) {
  return Between(place.Block(0)[0], step.sigma);
}

std::optional<Box> ErasedBox(const Place& place, const step::RandomErasing& step, int height,
                             int width) {
  if (!place.Happens(step.p)) return std::nullopt;
  const double all = static_cast<double>(height) * width;
  const double log0 = std::log(step.ratio[0]);
  const double log1 = std::log(step.ratio[1]);
  for (uint32_t attempt = 1; attempt <= kEraseAttempts; ++attempt) {
    const auto draw = place.Block(attempt);
    const double area = all * Between(draw[0], step.scale);
    const double ratio = std::exp(Between(draw[1], log0, log1));
    const double h = std::nearbyint(std::sqrt(area * ratio));
    const double w = std::nearbyint(std::sqrt(area / ratio));
    if (!(h < height && w < width)) continue;
    Box box = {.height = static_cast<int>(h), .width = static_cast<int>(w)};
    box.top = BelowInt(draw[2], height - box.height + 1);
    box.left = BelowInt(draw[3], width - box.width + 1);
    return box;
  }
  return std::nullopt;
}

Noise::Noise(const Place& place) {
  const auto draw = place.Block(kNoiseBlock);
  key_ = {draw[0], draw[1]};
}

float Noise::At(uint64_t element) {
  if (const uint64_t block = element / 4; block != block_) {
    block_ = block;
    const auto draw = Philox4x32({static_cast<uint32_t>(block), 0, 0, 0}, key_);
    for (size_t pair = 0; pair < 4; pair += 2) {
      const double r = std::sqrt(-2 * std::log((draw[pair] + 1.0) * 0x1p-32));
      const double turn = 2 * std::numbers::pi * Unit(draw[pair + 1]);
      values_[pair] = static_cast<float>(r * std::cos(turn));
      values_[pair + 1] = static_cast<float>(r * std::sin(turn));
    }
  }
  return values_[element % 4];
}

size_t Chosen(const Place& place, size_t count, const std::vector<double>& weights) {
  const uint32_t draw = place.Block(0)[0];
  if (weights.empty()) return Below(draw, static_cast<uint32_t>(count));
  double all = 0;
  for (const double weight : weights) all += weight;
  const double aim = Unit(draw) * all;
  double sum = 0;
  for (size_t i = 0; i + 1 < weights.size(); ++i) {
    sum += weights[i];
    if (aim < sum) return i;
  }
  return weights.size() - 1;
}

void Shuffle(const Place& place, std::span<uint8_t> order) {
  std::array<uint32_t, 4> draw{};
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    if (i % 4 == 0) draw = place.Block(static_cast<uint32_t>(i / 4));
    std::swap(order[i], order[i + Below(draw[i % 4], static_cast<uint32_t>(order.size() - i))]);
  }
}

}  // namespace loaderd::transform
