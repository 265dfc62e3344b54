// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/image.h"
#include "server/transform/image_ops.h"
#include "server/transform/random_params.h"

namespace loaderd::transform {

// The steps that take an image and give one.
using ImageStep =
    std::variant<step::Resize, step::CenterCrop, step::RandomResizedCrop,
                 step::RandomHorizontalFlip, step::Grayscale, step::Pad, step::RandomCrop,
                 step::RandomVerticalFlip, step::RandomRotation, step::RandomAffine,
                 step::RandomPerspective, step::ColorJitter, step::RandomGrayscale,
                 step::GaussianBlur, step::RandAugment, step::TrivialAugmentWide, step::AutoAugment,
                 step::RandomInvert, step::RandomPosterize, step::RandomSolarize,
                 step::RandomAdjustSharpness, step::RandomAutocontrast, step::RandomEqualize,
                 step::RandomApply, step::RandomChoice, step::RandomOrder>;

struct PlacedStep {
  uint32_t place = 0;  // the key of its random draws; see Place
  std::string path;    // "transform[1].resize"
  ImageStep step;
  std::vector<PlacedStep> held;  // of RandomApply, RandomChoice and RandomOrder, in their order
};

// Applies image steps to one sample. A data fault is kDataLoss that begins with the step's path.
class StepRunner {
 public:
  StepRunner(const ImageRules& rules, const SampleKey& key, ImageMemory& memory)
      : rules_(rules), key_(key), memory_(memory) {}

  StatusOr<Image> Apply(const PlacedStep& step, const Image& image) const;
  // True for a flip that does not happen to this sample.
  bool Skips(const PlacedStep& step) const;

 private:
  const ImageRules& rules_;
  const SampleKey& key_;
  ImageMemory& memory_;
};

}  // namespace loaderd::transform
