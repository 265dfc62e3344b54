// SPDX-License-Identifier: Apache-2.0
// RandAugment, TrivialAugmentWide and AutoAugment as torchvision has them: which operations of
// which strength a sample gets, and one operation done.
#pragma once

#include <array>
#include <optional>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/image.h"
#include "server/transform/image_ops.h"
#include "server/transform/random_params.h"

namespace loaderd::transform {

// In the order of torchvision's _augmentation_space, which the draws count in.
enum class AugmentKind {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
  kInvert
};

struct AugmentOp {
  AugmentKind kind = AugmentKind::kIdentity;
  double magnitude = 0;
  friend bool operator==(const AugmentOp&, const AugmentOp&) = default;
};

// Operation `number` of RandAugment, with block `number`: the kind is Below(w0, 14); a signed
// magnitude is negative when Below(w1, 2) is 1. All three: magnitudes are torch.linspace's, in
// float, by its plain formula (its vector code may differ in the last bit).
AugmentOp RandAugmentOp(const Place& place, const step::RandAugment& step, int number, int height,
                        int width);

// Block 0: the kind is Below(w0, 14), the magnitude's bin Below(w1, bins), negative when Below(w2,
// 2) is 1.
AugmentOp TrivialAugmentOp(const Place& place, const step::TrivialAugmentWide& step);

// Block 0: the policy is Below(w0, 25); its first operation happens when u1 is below its
// probability, its second by u2. Block 1: the magnitude of the first is negative when Below(w0, 2)
// is 0, of the second by w1.
std::array<std::optional<AugmentOp>, 2> AutoAugmentOps(const Place& place,
                                                       const step::AutoAugment& step, int height,
                                                       int width);

StatusOr<Image> Augment(const Image& image, const AugmentOp& op, Filter filter, const Fill& fill,
                        const ImageRules& rules, ImageMemory& memory);

}  // namespace loaderd::transform
