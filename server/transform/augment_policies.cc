// SPDX-License-Identifier: Apache-2.0
#include "server/transform/augment_policies.h"

#include <cmath>
#include <numbers>

#include "server/transform/color_ops.h"
#include "server/transform/geometry_ops.h"

namespace loaderd::transform {
namespace {
constexpr uint32_t kKinds = 14;  // without kInvert
constexpr int kAutoAugmentBins = 10;

struct PolicyOp {
  AugmentKind kind = AugmentKind::kIdentity;
  double p = 0;
  int bin = -1;  // -1: has no magnitude
};
using Policies = std::array<std::array<PolicyOp, 2>, 25>;

constexpr Policies kImageNetPolicies = {{
    {{{AugmentKind::kPosterize, 0.4, 8}, {AugmentKind::kRotate, 0.6, 9}}},
    {{{AugmentKind::kSolarize, 0.6, 5}, {AugmentKind::kAutoContrast, 0.6, -1}}},
    {{{AugmentKind::kEqualize, 0.8, -1}, {AugmentKind::kEqualize, 0.6, -1}}},
    {{{AugmentKind::kPosterize, 0.6, 7}, {AugmentKind::kPosterize, 0.6, 6}}},
    {{{AugmentKind::kEqualize, 0.4, -1}, {AugmentKind::kSolarize, 0.2, 4}}},
    {{{AugmentKind::kEqualize, 0.4, -1}, {AugmentKind::kRotate, 0.8, 8}}},
    {{{AugmentKind::kSolarize, 0.6, 3}, {AugmentKind::kEqualize, 0.6, -1}}},
    {{{AugmentKind::kPosterize, 0.8, 5}, {AugmentKind::kEqualize, 1.0, -1}}},
    {{{AugmentKind::kRotate, 0.2, 3}, {AugmentKind::kSolarize, 0.6, 8}}},
    {{{AugmentKind::kEqualize, 0.6, -1}, {AugmentKind::kPosterize, 0.4, 6}}},
    {{{AugmentKind::kRotate, 0.8, 8}, {AugmentKind::kColor, 0.4, 0}}},
    {{{AugmentKind::kRotate, 0.4, 9}, {AugmentKind::kEqualize, 0.6, -1}}},
    {{{AugmentKind::kEqualize, 0.0, -1}, {AugmentKind::kEqualize, 0.8, -1}}},
    {{{AugmentKind::kInvert, 0.6, -1}, {AugmentKind::kEqualize, 1.0, -1}}},
    {{{AugmentKind::kColor, 0.6, 4}, {AugmentKind::kContrast, 1.0, 8}}},
    {{{AugmentKind::kRotate, 0.8, 8}, {AugmentKind::kColor, 1.0, 2}}},
    {{{AugmentKind::kColor, 0.8, 8}, {AugmentKind::kSolarize, 0.8, 7}}},
    {{{AugmentKind::kSharpness, 0.4, 7}, {AugmentKind::kInvert, 0.6, -1}}},
    {{{AugmentKind::kShearX, 0.6, 5}, {AugmentKind::kEqualize, 1.0, -1}}},
    {{{AugmentKind::kColor, 0.4, 0}, {AugmentKind::kEqualize, 0.6, -1}}},
    {{{AugmentKind::kEqualize, 0.4, -1}, {AugmentKind::kSolarize, 0.2, 4}}},
    {{{AugmentKind::kSolarize, 0.6, 5}, {AugmentKind::kAutoContrast, 0.6, -1}}},
    {{{AugmentKind::kInvert, 0.6, -1}, {AugmentKind::kEqualize, 1.0, -1}}},
    {{{AugmentKind::kColor, 0.6, 4}, {AugmentKind::kContrast, 1.0, 8}}},
    {{{AugmentKind::kEqualize, 0.8, -1}, {AugmentKind::kEqualize, 0.6, -1}}},
}};

constexpr Policies kCifar10Policies = {{
    {{{AugmentKind::kInvert, 0.1, -1}, {AugmentKind::kContrast, 0.2, 6}}},
    {{{AugmentKind::kRotate, 0.7, 2}, {AugmentKind::kTranslateX, 0.3, 9}}},
    {{{AugmentKind::kSharpness, 0.8, 1}, {AugmentKind::kSharpness, 0.9, 3}}},
    {{{AugmentKind::kShearY, 0.5, 8}, {AugmentKind::kTranslateY, 0.7, 9}}},
    {{{AugmentKind::kAutoContrast, 0.5, -1}, {AugmentKind::kEqualize, 0.9, -1}}},
    {{{AugmentKind::kShearY, 0.2, 7}, {AugmentKind::kPosterize, 0.3, 7}}},
    {{{AugmentKind::kColor, 0.4, 3}, {AugmentKind::kBrightness, 0.6, 7}}},
    {{{AugmentKind::kSharpness, 0.3, 9}, {AugmentKind::kBrightness, 0.7, 9}}},
    {{{AugmentKind::kEqualize, 0.6, -1}, {AugmentKind::kEqualize, 0.5, -1}}},
    {{{AugmentKind::kContrast, 0.6, 7}, {AugmentKind::kSharpness, 0.6, 5}}},
    {{{AugmentKind::kColor, 0.7, 7}, {AugmentKind::kTranslateX, 0.5, 8}}},
    {{{AugmentKind::kEqualize, 0.3, -1}, {AugmentKind::kAutoContrast, 0.4, -1}}},
    {{{AugmentKind::kTranslateY, 0.4, 3}, {AugmentKind::kSharpness, 0.2, 6}}},
    {{{AugmentKind::kBrightness, 0.9, 6}, {AugmentKind::kColor, 0.2, 8}}},
    {{{AugmentKind::kSolarize, 0.5, 2}, {AugmentKind::kInvert, 0.0, -1}}},
    {{{AugmentKind::kEqualize, 0.2, -1}, {AugmentKind::kAutoContrast, 0.6, -1}}},
    {{{AugmentKind::kEqualize, 0.2, -1}, {AugmentKind::kEqualize, 0.6, -1}}},
    {{{AugmentKind::kColor, 0.9, 9}, {AugmentKind::kEqualize, 0.6, -1}}},
    {{{AugmentKind::kAutoContrast, 0.8, -1}, {AugmentKind::kSolarize, 0.2, 8}}},
    {{{AugmentKind::kBrightness, 0.1, 3}, {AugmentKind::kColor, 0.7, 0}}},
    {{{AugmentKind::kSolarize, 0.4, 5}, {AugmentKind::kAutoContrast, 0.9, -1}}},
    {{{AugmentKind::kTranslateY, 0.9, 9}, {AugmentKind::kTranslateY, 0.7, 9}}},
    {{{AugmentKind::kAutoContrast, 0.9, -1}, {AugmentKind::kSolarize, 0.8, 3}}},
    {{{AugmentKind::kEqualize, 0.8, -1}, {AugmentKind::kInvert, 0.1, -1}}},
    {{{AugmentKind::kTranslateY, 0.7, 9}, {AugmentKind::kAutoContrast, 0.9, -1}}},
}};

constexpr Policies kSvhnPolicies = {{
    {{{AugmentKind::kShearX, 0.9, 4}, {AugmentKind::kInvert, 0.2, -1}}},
    {{{AugmentKind::kShearY, 0.9, 8}, {AugmentKind::kInvert, 0.7, -1}}},
    {{{AugmentKind::kEqualize, 0.6, -1}, {AugmentKind::kSolarize, 0.6, 6}}},
    {{{AugmentKind::kInvert, 0.9, -1}, {AugmentKind::kEqualize, 0.6, -1}}},
    {{{AugmentKind::kEqualize, 0.6, -1}, {AugmentKind::kRotate, 0.9, 3}}},
    {{{AugmentKind::kShearX, 0.9, 4}, {AugmentKind::kAutoContrast, 0.8, -1}}},
    {{{AugmentKind::kShearY, 0.9, 8}, {AugmentKind::kInvert, 0.4, -1}}},
    {{{AugmentKind::kShearY, 0.9, 5}, {AugmentKind::kSolarize, 0.2, 6}}},
    {{{AugmentKind::kInvert, 0.9, -1}, {AugmentKind::kAutoContrast, 0.8, -1}}},
    {{{AugmentKind::kEqualize, 0.6, -1}, {AugmentKind::kRotate, 0.9, 3}}},
    {{{AugmentKind::kShearX, 0.9, 4}, {AugmentKind::kSolarize, 0.3, 3}}},
    {{{AugmentKind::kShearY, 0.8, 8}, {AugmentKind::kInvert, 0.7, -1}}},
    {{{AugmentKind::kEqualize, 0.9, -1}, {AugmentKind::kTranslateY, 0.6, 6}}},
    {{{AugmentKind::kInvert, 0.9, -1}, {AugmentKind::kEqualize, 0.6, -1}}},
    {{{AugmentKind::kContrast, 0.3, 3}, {AugmentKind::kRotate, 0.8, 4}}},
    {{{AugmentKind::kInvert, 0.8, -1}, {AugmentKind::kTranslateY, 0.0, 2}}},
    {{{AugmentKind::kShearY, 0.7, 6}, {AugmentKind::kSolarize, 0.4, 8}}},
    {{{AugmentKind::kInvert, 0.6, -1}, {AugmentKind::kRotate, 0.8, 4}}},
    {{{AugmentKind::kShearY, 0.3, 7}, {AugmentKind::kTranslateX, 0.9, 3}}},
    {{{AugmentKind::kShearX, 0.1, 6}, {AugmentKind::kInvert, 0.6, -1}}},
    {{{AugmentKind::kSolarize, 0.7, 2}, {AugmentKind::kTranslateY, 0.6, 7}}},
    {{{AugmentKind::kShearY, 0.8, 4}, {AugmentKind::kInvert, 0.8, -1}}},
    {{{AugmentKind::kShearX, 0.7, 9}, {AugmentKind::kTranslateY, 0.8, 3}}},
    {{{AugmentKind::kShearY, 0.8, 5}, {AugmentKind::kAutoContrast, 0.7, -1}}},
    {{{AugmentKind::kShearX, 0.7, 2}, {AugmentKind::kInvert, 0.1, -1}}},
}};

// How strong the strongest is.
struct Strengths {
  float shear = 0;
  float translate_x = 0;
  float translate_y = 0;
  float rotate = 0;
  float colour = 0;
  int posterize = 0;  // bits taken away
};

Strengths NarrowStrengths(int height, int width) {
  return {.shear = 0.3F,
          .translate_x = static_cast<float>(150.0 / 331.0 * width),
          .translate_y = static_cast<float>(150.0 / 331.0 * height),
          .rotate = 30,
          .colour = 0.9F,
          .posterize = 4};
}

constexpr Strengths kWideStrengths = {.shear = 0.99F,
                                      .translate_x = 32,
                                      .translate_y = 32,
                                      .rotate = 135,
                                      .colour = 0.99F,
                                      .posterize = 6};

// torch.linspace(from, to, bins)[bin].
float Linear(float from, float to, int bins, int bin) {
  const float step = (to - from) / static_cast<float>(bins - 1);
  if (bin < bins / 2) return from + step * static_cast<float>(bin);
  return to - step * static_cast<float>(bins - 1 - bin);
}

bool HasMagnitude(AugmentKind kind) {
  return kind != AugmentKind::kIdentity && kind < AugmentKind::kAutoContrast;
}
bool IsSigned(AugmentKind kind) { return HasMagnitude(kind) && kind < AugmentKind::kPosterize; }

double Magnitude(AugmentKind kind, const Strengths& most, int bins, int bin) {
  const auto up_to = [&](float strength) { return double{Linear(0, strength, bins, bin)}; };
  switch (kind) {
    case AugmentKind::kShearX:
    case AugmentKind::kShearY: return up_to(most.shear);
    case AugmentKind::kTranslateX: return up_to(most.translate_x);
    case AugmentKind::kTranslateY: return up_to(most.translate_y);
    case AugmentKind::kRotate: return up_to(most.rotate);
    case AugmentKind::kBrightness:
    case AugmentKind::kColor:
    case AugmentKind::kContrast:
    case AugmentKind::kSharpness: return up_to(most.colour);
    case AugmentKind::kPosterize: {
      const auto width = static_cast<float>((bins - 1) / static_cast<double>(most.posterize));
      return 8.0 - double{std::nearbyint(static_cast<float>(bin) / width)};
    }
    case AugmentKind::kSolarize: return double{Linear(255, 0, bins, bin)};
    default: return 0;
  }
}

AugmentOp Signed(AugmentKind kind, double magnitude, bool is_negative) {
  return {.kind = kind, .magnitude = is_negative && IsSigned(kind) ? -magnitude : magnitude};
}

Image Shear(const Image& image, double x, double y, Filter filter, const Fill& fill,
            ImageMemory& memory) {
  const auto degrees = [](double slope) { return std::atan(slope) * (180.0 / std::numbers::pi); };
  return Affine(image, {.shear = {degrees(x), degrees(y)}}, filter, Point{0, 0}, fill, memory);
}

Image Translate(const Image& image, double x, double y, Filter filter, const Fill& fill,
                ImageMemory& memory) {
  return Affine(image, {.translate = {static_cast<int>(x), static_cast<int>(y)}}, filter, {}, fill,
                memory);
}
}  // namespace

AugmentOp RandAugmentOp(const Place& place, const step::RandAugment& step, int number, int height,
                        int width) {
  const auto draw = place.Block(static_cast<uint32_t>(number));
  const auto kind = static_cast<AugmentKind>(Below(draw[0], kKinds));
  const double magnitude =
      Magnitude(kind, NarrowStrengths(height, width), step.num_magnitude_bins, step.magnitude);
  return Signed(kind, magnitude, Below(draw[1], 2) == 1);
}

AugmentOp TrivialAugmentOp(const Place& place, const step::TrivialAugmentWide& step) {
  const auto draw = place.Block(0);
  const auto kind = static_cast<AugmentKind>(Below(draw[0], kKinds));
  const int bins = step.num_magnitude_bins;
  const int bin = static_cast<int>(Below(draw[1], static_cast<uint32_t>(bins)));
  return Signed(kind, Magnitude(kind, kWideStrengths, bins, bin), Below(draw[2], 2) == 1);
}

std::array<std::optional<AugmentOp>, 2> AutoAugmentOps(const Place& place,
                                                       const step::AutoAugment& step, int height,
                                                       int width) {
  const Policies& policies = step.policy == step::AugmentPolicy::kCifar10 ? kCifar10Policies
                             : step.policy == step::AugmentPolicy::kSvhn  ? kSvhnPolicies
                                                                          : kImageNetPolicies;
  const auto draw = place.Block(0);
  const auto signs = place.Block(1);
  const auto& policy = policies[Below(draw[0], static_cast<uint32_t>(policies.size()))];
  std::array<std::optional<AugmentOp>, 2> ops;
  for (size_t i = 0; i < 2; ++i) {
    if (!(Unit(draw[i + 1]) < policy[i].p)) continue;
    const double magnitude = policy[i].bin < 0
                                 ? 0
                                 : Magnitude(policy[i].kind, NarrowStrengths(height, width),
                                             kAutoAugmentBins, policy[i].bin);
    ops[i] = Signed(policy[i].kind, magnitude, Below(signs[i], 2) == 0);
  }
  return ops;
}

StatusOr<Image> Augment(const Image& image, const AugmentOp& op, Filter filter, const Fill& fill,
                        const ImageRules& rules, ImageMemory& memory) {
  const double m = op.magnitude;
  switch (op.kind) {
    case AugmentKind::kIdentity: return image;
    case AugmentKind::kShearX: return Shear(image, m, 0, filter, fill, memory);
    case AugmentKind::kShearY: return Shear(image, 0, m, filter, fill, memory);
    case AugmentKind::kTranslateX: return Translate(image, m, 0, filter, fill, memory);
    case AugmentKind::kTranslateY: return Translate(image, 0, m, filter, fill, memory);
    case AugmentKind::kRotate: return Rotate(image, m, filter, false, {}, fill, rules, memory);
    case AugmentKind::kBrightness: return AdjustBrightness(image, 1.0 + m, memory);
    case AugmentKind::kColor: return AdjustSaturation(image, 1.0 + m, memory);
    case AugmentKind::kContrast: return AdjustContrast(image, 1.0 + m, memory);
    case AugmentKind::kSharpness: return AdjustSharpness(image, 1.0 + m, memory);
    case AugmentKind::kPosterize: return Posterize(image, static_cast<int>(m), memory);
    case AugmentKind::kSolarize: return Solarize(image, m, memory);
    case AugmentKind::kAutoContrast: return AutoContrast(image, memory);
    case AugmentKind::kEqualize: return Equalize(image, memory);
    case AugmentKind::kInvert: return Invert(image, memory);
  }
  return image;
}

}  // namespace loaderd::transform
