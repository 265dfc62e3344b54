// SPDX-License-Identifier: Apache-2.0
#include "server/plan/augment_steps.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "loaderd/v1/job.pb.h"
#include "server/plan/fields.h"
#include "server/plan/step_fields.h"

namespace loaderd::plan {
namespace {

constexpr double kMaxDegrees = 3600000;
constexpr double kMaxCenter = 1e6;
constexpr double kMaxFactor = 1000;
constexpr int kMaxKernel = 1023;
constexpr int kMaxBins = 1024;

StatusOr<step::Fill> ParseFill(const std::string& step_path, const RepeatedField<double>& fill) {
  const std::string path = Sub(step_path, "fill");
  if (fill.empty()) return step::Fill{0};
  if (fill.size() != 1 && fill.size() != 3) {
    return Invalid(path, absl::StrCat("must have 1 or 3 numbers, has ", fill.size()));
  }
  step::Fill out;
  for (int i = 0; i < fill.size(); ++i) {
    RETURN_IF_ERROR(CheckRange(At(path, i), fill[i], 0, 255));
    out.push_back(static_cast<uint8_t>(fill[i]));
  }
  return out;
}

StatusOr<Padding> ParsePadding(const std::string& step_path, const RepeatedField<int64_t>& sides) {
  const std::string path = Sub(step_path, "padding");
  if (sides.size() != 1 && sides.size() != 2 && sides.size() != 4) {
    return Invalid(path, absl::StrCat("must have 1, 2 or 4 numbers, has ", sides.size()));
  }
  std::array<int, 4> all{};
  for (int i = 0; i < 4; ++i) {
    const int from = i % sides.size();
    ASSIGN_OR_RETURN(all[static_cast<size_t>(i)],
                     InRange(At(path, from), sides[from], 0, kMaxEdge));
  }
  return Padding{.left = all[0], .top = all[1], .right = all[2], .bottom = all[3]};
}

StatusOr<PadMode> ParsePadMode(const std::string& path, v1::PaddingMode mode) {
  return Pick<v1::PaddingMode, PadMode>(Sub(path, "padding_mode"), mode, PadMode::kConstant,
                                        {{v1::PADDING_MODE_CONSTANT, PadMode::kConstant},
                                         {v1::PADDING_MODE_EDGE, PadMode::kEdge},
                                         {v1::PADDING_MODE_REFLECT, PadMode::kReflect},
                                         {v1::PADDING_MODE_SYMMETRIC, PadMode::kSymmetric}});
}

// Required.
StatusOr<step::Interval> ParseDegrees(const std::string& step_path,
                                      const RepeatedField<double>& degrees) {
  const std::string path = Sub(step_path, "degrees");
  if (degrees.empty()) return Invalid(path, "is required: [min, max]");
  step::Interval out = {0, 0};
  RETURN_IF_ERROR(ParseInterval(path, degrees, -kMaxDegrees, kMaxDegrees, out));
  return out;
}

StatusOr<std::optional<step::Interval>> ParseOptional(const std::string& path,
                                                      const RepeatedField<double>& values,
                                                      double least, double most) {
  if (values.empty()) return std::optional<step::Interval>();
  step::Interval out = {0, 0};
  RETURN_IF_ERROR(ParseInterval(path, values, least, most, out));
  return std::optional(out);
}

// Two numbers, neither of them greater by rule.
StatusOr<std::optional<step::Point>> ParsePair(const std::string& path,
                                               const RepeatedField<double>& values, double least,
                                               double most) {
  if (values.empty()) return std::optional<step::Point>();
  if (values.size() != 2) {
    return Invalid(path, absl::StrCat("must have 2 numbers, has ", values.size()));
  }
  for (int i = 0; i < 2; ++i) RETURN_IF_ERROR(CheckRange(At(path, i), values[i], least, most));
  return std::optional(step::Point{values[0], values[1]});
}

StatusOr<int> ParseBins(const std::string& path, bool is_set, int64_t bins, int unset) {
  return InRange(Sub(path, "num_magnitude_bins"), is_set ? bins : unset, 2, kMaxBins);
}
}  // namespace

StatusOr<Step> ParsePad(const std::string& path, const v1::Pad& spec) {
  step::Pad out;
  ASSIGN_OR_RETURN(out.padding, ParsePadding(path, spec.padding()));
  ASSIGN_OR_RETURN(out.fill, ParseFill(path, spec.fill()));
  ASSIGN_OR_RETURN(out.mode, ParsePadMode(path, spec.padding_mode()));
  return out;
}

StatusOr<Step> ParseRandomCrop(const std::string& path, const v1::RandomCrop& spec) {
  step::RandomCrop out;
  ASSIGN_OR_RETURN(out.size, ParseBox(path, spec.size()));
  if (!spec.padding().empty()) {
    ASSIGN_OR_RETURN(out.padding, ParsePadding(path, spec.padding()));
  }
  out.pad_if_needed = spec.pad_if_needed();
  ASSIGN_OR_RETURN(out.fill, ParseFill(path, spec.fill()));
  ASSIGN_OR_RETURN(out.mode, ParsePadMode(path, spec.padding_mode()));
  return out;
}

StatusOr<Step> ParseRotation(const std::string& path, const v1::RandomRotation& spec) {
  step::RandomRotation out;
  ASSIGN_OR_RETURN(out.degrees, ParseDegrees(path, spec.degrees()));
  ASSIGN_OR_RETURN(out.filter, ParseWarpFilter(path, spec.interpolation(), out.filter));
  out.expand = spec.expand();
  ASSIGN_OR_RETURN(out.center,
                   ParsePair(Sub(path, "center"), spec.center(), -kMaxCenter, kMaxCenter));
  ASSIGN_OR_RETURN(out.fill, ParseFill(path, spec.fill()));
  return out;
}

StatusOr<Step> ParseAffine(const std::string& path, const v1::RandomAffine& spec) {
  step::RandomAffine out;
  ASSIGN_OR_RETURN(out.degrees, ParseDegrees(path, spec.degrees()));
  ASSIGN_OR_RETURN(out.translate, ParsePair(Sub(path, "translate"), spec.translate(), 0, 1));
  ASSIGN_OR_RETURN(out.scale,
                   ParseOptional(Sub(path, "scale"), spec.scale(), 1 / kMaxRatio, kMaxRatio));
  const std::string shear_path = Sub(path, "shear");
  const auto& shear = spec.shear();
  if (!shear.empty() && shear.size() != 2 && shear.size() != 4) {
    return Invalid(shear_path, absl::StrCat("must have 2 or 4 numbers, has ", shear.size()));
  }
  if (!shear.empty()) {
    const RepeatedField<double> x(shear.begin(), shear.begin() + 2);
    ASSIGN_OR_RETURN(out.shear_x, ParseOptional(shear_path, x, -kMaxDegrees, kMaxDegrees));
    const RepeatedField<double> y(shear.begin() + 2, shear.end());
    ASSIGN_OR_RETURN(out.shear_y, ParseOptional(shear_path, y, -kMaxDegrees, kMaxDegrees));
  }
  ASSIGN_OR_RETURN(out.filter, ParseWarpFilter(path, spec.interpolation(), out.filter));
  ASSIGN_OR_RETURN(out.fill, ParseFill(path, spec.fill()));
  ASSIGN_OR_RETURN(out.center,
                   ParsePair(Sub(path, "center"), spec.center(), -kMaxCenter, kMaxCenter));
  return out;
}

StatusOr<Step> ParsePerspective(const std::string& path, const v1::RandomPerspective& spec) {
  step::RandomPerspective out;
  if (spec.has_distortion_scale()) out.distortion_scale = spec.distortion_scale();
  RETURN_IF_ERROR(CheckRange(Sub(path, "distortion_scale"), out.distortion_scale, 0, 1));
  ASSIGN_OR_RETURN(out.p, ParseP(path, spec, out.p));
  ASSIGN_OR_RETURN(out.filter, ParseWarpFilter(path, spec.interpolation(), out.filter));
  ASSIGN_OR_RETURN(out.fill, ParseFill(path, spec.fill()));
  return out;
}

StatusOr<Step> ParseJitter(const std::string& path, const v1::ColorJitter& spec) {
  step::ColorJitter out;
  ASSIGN_OR_RETURN(out.brightness,
                   ParseOptional(Sub(path, "brightness"), spec.brightness(), 0, kMaxFactor));
  ASSIGN_OR_RETURN(out.contrast,
                   ParseOptional(Sub(path, "contrast"), spec.contrast(), 0, kMaxFactor));
  ASSIGN_OR_RETURN(out.saturation,
                   ParseOptional(Sub(path, "saturation"), spec.saturation(), 0, kMaxFactor));
  ASSIGN_OR_RETURN(out.hue, ParseOptional(Sub(path, "hue"), spec.hue(), -0.5, 0.5));
  return out;
}

StatusOr<Step> ParseBlur(const std::string& path, const v1::GaussianBlur& spec) {
  step::GaussianBlur out;
  const std::string kernel_path = Sub(path, "kernel_size");
  const auto& kernel = spec.kernel_size();
  if (kernel.size() != 1 && kernel.size() != 2) {
    return Invalid(kernel_path, absl::StrCat("must be [edge] or [width, height], has ",
                                             kernel.size(), " numbers"));
  }
  for (int i = 0; i < 2; ++i) {
    const int from = i % kernel.size();
    ASSIGN_OR_RETURN(const int edge, InRange(At(kernel_path, from), kernel[from], 1, kMaxKernel));
    if (edge % 2 == 0) {
      return Invalid(At(kernel_path, from), absl::StrCat("must be odd, is ", edge));
    }
    out.kernel[static_cast<size_t>(i)] = edge;
  }
  RETURN_IF_ERROR(
      ParseInterval(Sub(path, "sigma"), spec.sigma(), 1 / kMaxRatio, kMaxRatio, out.sigma));
  return out;
}

StatusOr<Step> ParseErasing(const std::string& path, const v1::RandomErasing& spec) {
  step::RandomErasing out;
  ASSIGN_OR_RETURN(out.p, ParseP(path, spec, out.p));
  RETURN_IF_ERROR(ParseInterval(Sub(path, "scale"), spec.scale(), 0, 1, out.scale));
  RETURN_IF_ERROR(
      ParseInterval(Sub(path, "ratio"), spec.ratio(), 1 / kMaxRatio, kMaxRatio, out.ratio));
  if (spec.random()) {
    if (!spec.value().empty()) return Invalid(Sub(path, "value"), "must not stand beside random");
    out.value.clear();
  } else if (!spec.value().empty()) {
    ASSIGN_OR_RETURN(out.value, ParseChannels(Sub(path, "value"), spec.value(), false));
  }
  return out;
}

StatusOr<Step> ParseRandAugment(const std::string& path, const v1::RandAugment& spec) {
  step::RandAugment out;
  if (spec.has_num_ops()) {
    ASSIGN_OR_RETURN(out.num_ops, InRange(Sub(path, "num_ops"), spec.num_ops(), 0, 64));
  }
  ASSIGN_OR_RETURN(out.num_magnitude_bins,
                   ParseBins(path, spec.has_num_magnitude_bins(), spec.num_magnitude_bins(),
                             out.num_magnitude_bins));
  ASSIGN_OR_RETURN(out.magnitude,
                   InRange(Sub(path, "magnitude"),
                           spec.has_magnitude() ? spec.magnitude() : int64_t{out.magnitude}, 0,
                           int64_t{out.num_magnitude_bins} - 1));
  ASSIGN_OR_RETURN(out.filter, ParseWarpFilter(path, spec.interpolation(), out.filter));
  ASSIGN_OR_RETURN(out.fill, ParseFill(path, spec.fill()));
  return out;
}

StatusOr<Step> ParseTrivialAugment(const std::string& path, const v1::TrivialAugmentWide& spec) {
  step::TrivialAugmentWide out;
  ASSIGN_OR_RETURN(out.num_magnitude_bins,
                   ParseBins(path, spec.has_num_magnitude_bins(), spec.num_magnitude_bins(),
                             out.num_magnitude_bins));
  ASSIGN_OR_RETURN(out.filter, ParseWarpFilter(path, spec.interpolation(), out.filter));
  ASSIGN_OR_RETURN(out.fill, ParseFill(path, spec.fill()));
  return out;
}

StatusOr<Step> ParseAutoAugment(const std::string& path, const v1::AutoAugment& spec) {
  step::AutoAugment out;
  ASSIGN_OR_RETURN(out.policy,
                   (Pick<v1::AutoAugmentPolicy, step::AugmentPolicy>(
                       Sub(path, "policy"), spec.policy(), out.policy,
                       {{v1::AUTO_AUGMENT_POLICY_IMAGENET, step::AugmentPolicy::kImageNet},
                        {v1::AUTO_AUGMENT_POLICY_CIFAR10, step::AugmentPolicy::kCifar10},
                        {v1::AUTO_AUGMENT_POLICY_SVHN, step::AugmentPolicy::kSvhn}})));
  ASSIGN_OR_RETURN(out.filter, ParseWarpFilter(path, spec.interpolation(), out.filter));
  ASSIGN_OR_RETURN(out.fill, ParseFill(path, spec.fill()));
  return out;
}

StatusOr<Step> ParsePosterize(const std::string& path, const v1::RandomPosterize& spec) {
  step::RandomPosterize out;
  ASSIGN_OR_RETURN(out.bits, InRange(Sub(path, "bits"), spec.bits(), 1, 8));
  ASSIGN_OR_RETURN(out.p, ParseP(path, spec, out.p));
  return out;
}

StatusOr<Step> ParseSolarize(const std::string& path, const v1::RandomSolarize& spec) {
  step::RandomSolarize out;
  if (!spec.has_threshold()) return Invalid(Sub(path, "threshold"), "is required");
  out.threshold = spec.threshold();
  RETURN_IF_ERROR(CheckRange(Sub(path, "threshold"), out.threshold, -1000, 1000));
  ASSIGN_OR_RETURN(out.p, ParseP(path, spec, out.p));
  return out;
}

StatusOr<Step> ParseSharpness(const std::string& path, const v1::RandomAdjustSharpness& spec) {
  step::RandomAdjustSharpness out;
  if (!spec.has_sharpness_factor()) return Invalid(Sub(path, "sharpness_factor"), "is required");
  out.factor = spec.sharpness_factor();
  RETURN_IF_ERROR(CheckRange(Sub(path, "sharpness_factor"), out.factor, 0, kMaxFactor));
  ASSIGN_OR_RETURN(out.p, ParseP(path, spec, out.p));
  return out;
}

}  // namespace loaderd::plan
