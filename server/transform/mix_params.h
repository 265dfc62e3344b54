// SPDX-License-Identifier: Apache-2.0
// What MixUp and CutMix do to one batch, as plain values: torchvision's v2 make_params over Draw().
// client/python/loaderd/_batch_random.py is the same in Python, bit for bit.
//
// A batch's key has its number in the place of a sample's index, and its steps have places of their
// own: its draws are no sample's. A step's number is 0, or in a RandomChoice, which is 0, from 1
// on.
#pragma once

#include <cstdint>

#include "server/transform/random.h"
#include "server/transform/random_params.h"

namespace loaderd::transform {

inline constexpr uint32_t kBatchPlaces = 32768;  // places of batch steps begin here

// Ranks draw apart: index is rank << 40 | step.
struct BatchKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t step = 0;  // below 2^40
  uint32_t rank = 0;

  Place At(uint32_t number) const {
    return {.key = {.seed = seed, .epoch = epoch, .index = uint64_t{rank} << 40 | step},
            .number = kBatchPlaces + number};
  }
};

// Beta(alpha, alpha), rounded to float32 and kept between 2^-126 and 1 - 2^-24, as torch draws it.
//
// Attempt t has block t, from 1 on; u = (w0 + 0.5) / 2^32, v likewise of w1. Only +, -, *, /, sqrt,
// log and exp of doubles, in the order of the code, so that the mirror gets the same bits.
// alpha >= 1: algorithm BB of Cheng, "Generating beta variates with nonintegral shape parameters",
// CACM 21 (1978), without its two squeezes, which spare a logarithm and change nothing.
// alpha < 1: Joehnk, "Erzeugung von betaverteilten und gammaverteilten Zufallszahlen", Metrika 8
// (1964), on logarithms, as small powers underflow. At least every second attempt or so is taken;
// after 128 (which never happens) it is 0.5.
double BetaOf(const Place& place, double alpha);

// The part of each batch that is cut from the samples before, in pixels: x0 <= x < x1, y likewise.
struct Cut {
  int x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  double lam = 1;  // of the labels: the part of the image that stays
  friend bool operator==(const Cut&, const Cut&) = default;
};

// The middle by block 0: x = Below(w0, width), y = Below(w1, height). Half of its edges is
// int(0.5 * sqrt(1 - BetaOf) * the image's); what lies outside of the image is cut off.
Cut CutOf(const Place& place, double alpha, int height, int width);

}  // namespace loaderd::transform
