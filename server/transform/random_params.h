// SPDX-License-Identifier: Apache-2.0
// What each random step does to one sample, as plain values: torchvision's get_params over Draw().
// client/python/loaderd/random.py is the same in Python.
//
// Below, wi is draw i of a block and ui = Unit(wi); between(u, a, b) = a + u * (b - a). A step that
// happens with probability p does so when u0 of block 0 is below p.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "server/base/spec.h"
#include "server/transform/geometry_ops.h"
#include "server/transform/random.h"

namespace loaderd::transform {

// The place of a step is its number in the recipe: 0 on, each step before the steps that it holds,
// those before the step that follows it. Without RandomApply, RandomChoice and RandomOrder it is
// the position in the list.
struct Place {
  SampleKey key;
  uint32_t number = 0;

  std::array<uint32_t, 4> Block(uint32_t block) const { return Draw(key, number, block); }
  bool Happens(double p) const { return RandomFlip(key, number, p); }
};

// Block 0: top = Below(w0, height - size.height + 1), left = Below(w1, width - size.width + 1).
// The image is at least as large as `size`.
Box RandomCropBox(const Place& place, int height, int width, Size size);

// Block 0: between(u0, degrees).
double RotationAngle(const Place& place, const step::RandomRotation& step);

// Block 0: angle = between(u0, degrees); translation x = round(between(u1, -m, m)) with
// m = translate[0] * width, half to even, y likewise with u2 and the height; scale = between(u3,
// scale). Block 1: shear x and y by u0 and u1.
AffineParams AffineOf(const Place& place, const step::RandomAffine& step, int height, int width);

// Block 0 decides by p. With dx = int(distortion_scale * (width / 2)), dy likewise: block 1, the
// top corners: left Below(w0, dx + 1), Below(w1, dy + 1); right width - dx - 1 + Below(w2, dx + 1),
// Below(w3, dy + 1). Block 2, the bottom corners: right w0 and w1, left w2 and w3, the same way.
std::optional<Corners> PerspectiveCorners(const Place& place, const step::RandomPerspective& step,
                                          int height, int width);

struct JitterParams {
  std::array<int, 4> order = {0, 1, 2, 3};  // 0 brightness, 1 contrast, 2 saturation, 3 hue
  std::array<std::optional<double>, 4> factors;
};
// Block 0: the order, by Shuffle. Block 1: the factors, between(ui, ...).
JitterParams JitterOf(const Place& place, const step::ColorJitter& step);

// Block 0: between(u0, sigma).
double BlurSigma(const Place& place, const step::GaussianBlur& step);

// Block 0 decides by p. Ten attempts, t = 1 to 10, with block t: area = height * width *
// between(u0, scale), ratio = exp(between(u1, log ratio)), h = round(sqrt(area * ratio)), w =
// round(sqrt(area / ratio)), half to even; taken when h < height and w < width, with top =
// Below(w2, height - h + 1) and left = Below(w3, width - w + 1). Else nothing is erased.
std::optional<Box> ErasedBox(const Place& place, const step::RandomErasing& step, int height,
                             int width);

// The noise of an erased box, its elements numbered channel by channel, row by row. With k0 and k1
// the first draws of block 11, elements 4n to 4n + 3 come from w = Philox4x32({n, 0, 0, 0}, {k0,
// k1}) by Box and Muller: r = sqrt(-2 log((w0 + 1) / 2^32)), r cos(2 pi u1), r sin(2 pi u1), the
// same with w2 and w3; as float.
class Noise {
 public:
  explicit Noise(const Place& place);
  float At(uint64_t element);

 private:
  std::array<uint32_t, 2> key_;
  uint64_t block_ = UINT64_MAX;
  std::array<float, 4> values_{};
};

// Which of RandomChoice's `count` transforms: without weights Below(w0, count); else the first
// whose weights so far add up to more than u0 * all.
size_t Chosen(const Place& place, size_t count, const std::vector<double>& weights);

// Fisher and Yates: for i from 0 to n - 2, i changes places with i + Below(draw i, n - i), where
// draw i is draw i % 4 of block i / 4.
void Shuffle(const Place& place, std::span<uint8_t> order);

}  // namespace loaderd::transform
