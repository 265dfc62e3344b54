// SPDX-License-Identifier: Apache-2.0
// The augmentations among the transforms, one function each; errors begin with the field's path.
#pragma once

#include <string>

#include "server/base/spec.h"
#include "server/base/status.h"

namespace loaderd::v1 {
class Pad;
class RandomCrop;
class RandomRotation;
class RandomAffine;
class RandomPerspective;
class ColorJitter;
class GaussianBlur;
class RandomErasing;
class RandAugment;
class TrivialAugmentWide;
class AutoAugment;
class RandomPosterize;
class RandomSolarize;
class RandomAdjustSharpness;
}  // namespace loaderd::v1

namespace loaderd::plan {

StatusOr<Step> ParsePad(const std::string& path, const v1::Pad& spec);
StatusOr<Step> ParseRandomCrop(const std::string& path, const v1::RandomCrop& spec);
StatusOr<Step> ParseRotation(const std::string& path, const v1::RandomRotation& spec);
StatusOr<Step> ParseAffine(const std::string& path, const v1::RandomAffine& spec);
StatusOr<Step> ParsePerspective(const std::string& path, const v1::RandomPerspective& spec);
StatusOr<Step> ParseJitter(const std::string& path, const v1::ColorJitter& spec);
StatusOr<Step> ParseBlur(const std::string& path, const v1::GaussianBlur& spec);
StatusOr<Step> ParseErasing(const std::string& path, const v1::RandomErasing& spec);
StatusOr<Step> ParseRandAugment(const std::string& path, const v1::RandAugment& spec);
StatusOr<Step> ParseTrivialAugment(const std::string& path, const v1::TrivialAugmentWide& spec);
StatusOr<Step> ParseAutoAugment(const std::string& path, const v1::AutoAugment& spec);
StatusOr<Step> ParsePosterize(const std::string& path, const v1::RandomPosterize& spec);
StatusOr<Step> ParseSolarize(const std::string& path, const v1::RandomSolarize& spec);
StatusOr<Step> ParseSharpness(const std::string& path, const v1::RandomAdjustSharpness& spec);

}  // namespace loaderd::plan
