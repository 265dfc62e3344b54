// SPDX-License-Identifier: Apache-2.0
#include "server/transform/mix_params.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace loaderd::transform {
namespace {

constexpr uint32_t kAttempts = 128;
constexpr float kMost = 1 - 0x1p-24F;

// Never 0 nor 1, and 1 - it is exact.
double Open(uint32_t draw) { return (draw + 0.5) * 0x1p-32; }

std::optional<double> TryCheng(double u, double v, double alpha) {
  const double root = std::sqrt(alpha);
  const double logit = std::log(u / (1.0 - u)) / root;
  const double odds = alpha * std::exp(logit);
  const double r = (alpha + root) * logit - std::log(4.0);
  const double sum = 2.0 * alpha;
  if (r + sum * std::log(sum / (alpha + odds)) < std::log(u * u * v)) return std::nullopt;
  return odds / (alpha + odds);
}

std::optional<double> TryJoehnk(double u, double v, double alpha) {
  const double x = std::log(u) / alpha;
  const double y = std::log(v) / alpha;
  if (std::exp(x) + std::exp(y) > 1.0) return std::nullopt;
  const double most = std::max(x, y);
  const double a = std::exp(x - most);
  const double b = std::exp(y - most);
  return a / (a + b);
}

}  // namespace

double BetaOf(const Place& place, double alpha) {
  for (uint32_t attempt = 1; attempt <= kAttempts; ++attempt) {
    const auto draw = place.Block(attempt);
    const double u = Open(draw[0]);
    const double v = Open(draw[1]);
    const auto taken = alpha < 1.0 ? TryJoehnk(u, v, alpha) : TryCheng(u, v, alpha);
    if (taken) {
      return std::clamp(static_cast<float>(*taken), std::numeric_limits<float>::min(), kMost);
    }
  }
  return 0.5;
}

Cut CutOf(const Place& place, double alpha, int height, int width) {
  const auto draw = place.Block(0);
  const int x = static_cast<int>(Below(draw[0], static_cast<uint32_t>(width)));
  const int y = static_cast<int>(Below(draw[1], static_cast<uint32_t>(height)));
  const double r = 0.5 * std::sqrt(1.0 - BetaOf(place, alpha));
  const int half_width = static_cast<int>(r * width);
  const int half_height = static_cast<int>(r * height);
  Cut cut = {.x0 = std::max(x - half_width, 0),
             .y0 = std::max(y - half_height, 0),
             .x1 = std::min(x + half_width, width),
             .y1 = std::min(y + half_height, height)};
  const auto area = static_cast<double>(int64_t{cut.x1 - cut.x0} * (cut.y1 - cut.y0));
  cut.lam = 1.0 - area / static_cast<double>(int64_t{width} * height);
  return cut;
}

}  // namespace loaderd::transform
