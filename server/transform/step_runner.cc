// SPDX-License-Identifier: Apache-2.0
#include "server/transform/step_runner.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "server/transform/augment_policies.h"
#include "server/transform/blur.h"
#include "server/transform/color_ops.h"
#include "server/transform/geometry_ops.h"

namespace loaderd::transform {
namespace {
// More than one of RandomOrder's can hold.
constexpr size_t kMostHeld = 256;

Fill FillOf(const step::Fill& values) {
  Fill fill{};
  for (size_t c = 0; c < fill.size(); ++c) fill[c] = values[values.size() == 1 ? 0 : c];
  return fill;
}

// One step on one image.
class Visitor {
 public:
  Visitor(const StepRunner& runner, const PlacedStep& placed, const Place& place,
          const Image& image, const ImageRules& rules, ImageMemory& memory)
      : runner_(runner),
        placed_(placed),
        place_(place),
        image_(image),
        rules_(rules),
        memory_(memory) {}

  StatusOr<Image> operator()(const step::Resize& resize) const {
    return Resize(image_, resize, rules_, memory_);
  }
  StatusOr<Image> operator()(const step::CenterCrop& crop) const {
    return CenterCrop(image_, crop.size, rules_, memory_);
  }
  StatusOr<Image> operator()(const step::RandomResizedCrop& crop) const {
    const Box box = RandomResizedCropBox(place_.key, place_.number, image_.height, image_.width,
                                         crop.scale, crop.ratio);
    return CropAndResize(image_, box, crop.size, crop.filter, rules_, memory_);
  }
  StatusOr<Image> operator()(const step::RandomHorizontalFlip& flip) const {
    return place_.Happens(flip.p) ? FlipHorizontally(image_, memory_.Next()) : image_;
  }
  StatusOr<Image> operator()(const step::RandomVerticalFlip& flip) const {
    return place_.Happens(flip.p) ? FlipVertically(image_, memory_) : image_;
  }
  StatusOr<Image> operator()(const step::Grayscale& grey) const {
    return ToGrey(image_, grey.channels, memory_);
  }
  StatusOr<Image> operator()(const step::RandomGrayscale& grey) const {
    return place_.Happens(grey.p) ? ToGrey(image_, image_.channels, memory_) : image_;
  }
  StatusOr<Image> operator()(const step::Pad& pad) const {
    return Pad(image_, pad.padding, pad.mode, FillOf(pad.fill), rules_, memory_);
  }
  StatusOr<Image> operator()(const step::RandomCrop& crop) const {
    Image image = image_;
    const auto pad = [&](const Padding& padding) -> Status {
      if (padding == Padding{}) return absl::OkStatus();
      ASSIGN_OR_RETURN(image, Pad(image, padding, crop.mode, FillOf(crop.fill), rules_, memory_));
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(pad(crop.padding));
    if (crop.pad_if_needed) {
      const int x = std::max(crop.size.width - image.width, 0);
      RETURN_IF_ERROR(pad({.left = x, .right = x}));
      const int y = std::max(crop.size.height - image.height, 0);
      RETURN_IF_ERROR(pad({.top = y, .bottom = y}));
    }
    if (image.height < crop.size.height || image.width < crop.size.width) {
      return absl::DataLossError(absl::StrCat(
          "the image of ", image.height, " x ", image.width, " pixels is smaller than the crop of ",
          crop.size.height, " x ", crop.size.width, "; pad_if_needed pads such images"));
    }
    return image.Crop(RandomCropBox(place_, image.height, image.width, crop.size));
  }
  StatusOr<Image> operator()(const step::RandomRotation& turn) const {
    return Rotate(image_, RotationAngle(place_, turn), turn.filter, turn.expand, turn.center,
                  FillOf(turn.fill), rules_, memory_);
  }
  StatusOr<Image> operator()(const step::RandomAffine& affine) const {
    return Affine(image_, AffineOf(place_, affine, image_.height, image_.width), affine.filter,
                  affine.center, FillOf(affine.fill), memory_);
  }
  StatusOr<Image> operator()(const step::RandomPerspective& view) const {
    const auto corners = PerspectiveCorners(place_, view, image_.height, image_.width);
    if (!corners) return image_;
    const int right = image_.width - 1;
    const int bottom = image_.height - 1;
    Corners from;
    from[0] = {0, 0};
    from[1] = {right, 0};
    from[2] = {right, bottom};
    from[3] = {0, bottom};
    return Perspective(image_, from, *corners, view.filter, FillOf(view.fill), memory_);
  }
  StatusOr<Image> operator()(const step::ColorJitter& jitter) const {
    const JitterParams params = JitterOf(place_, jitter);
    Image image = image_;
    for (const int which : params.order) {
      const std::optional<double>& factor = params.factors[static_cast<size_t>(which)];
      if (!factor) continue;
      switch (which) {
        case 0: image = AdjustBrightness(image, *factor, memory_); break;
        case 1: image = AdjustContrast(image, *factor, memory_); break;
        case 2: image = AdjustSaturation(image, *factor, memory_); break;
        default: image = AdjustHue(image, *factor, memory_); break;
      }
    }
    return image;
  }
  StatusOr<Image> operator()(const step::GaussianBlur& blur) const {
    const double sigma = BlurSigma(place_, blur);
    return GaussianBlur(image_, blur.kernel, {sigma, sigma}, memory_);
  }
  StatusOr<Image> operator()(const step::RandAugment& augment) const {
    Image image = image_;
    for (int i = 0; i < augment.num_ops; ++i) {
      const AugmentOp op = RandAugmentOp(place_, augment, i, image_.height, image_.width);
      ASSIGN_OR_RETURN(image,
                       Augment(image, op, augment.filter, FillOf(augment.fill), rules_, memory_));
    }
    return image;
  }
  StatusOr<Image> operator()(const step::TrivialAugmentWide& augment) const {
    return Augment(image_, TrivialAugmentOp(place_, augment), augment.filter, FillOf(augment.fill),
                   rules_, memory_);
  }
  StatusOr<Image> operator()(const step::AutoAugment& augment) const {
    Image image = image_;
    for (const auto& op : AutoAugmentOps(place_, augment, image_.height, image_.width)) {
      if (!op) continue;
      ASSIGN_OR_RETURN(image,
                       Augment(image, *op, augment.filter, FillOf(augment.fill), rules_, memory_));
    }
    return image;
  }
  StatusOr<Image> operator()(const step::RandomInvert& invert) const {
    return place_.Happens(invert.p) ? Invert(image_, memory_) : image_;
  }
  StatusOr<Image> operator()(const step::RandomPosterize& posterize) const {
    return place_.Happens(posterize.p) ? Posterize(image_, posterize.bits, memory_) : image_;
  }
  StatusOr<Image> operator()(const step::RandomSolarize& solarize) const {
    return place_.Happens(solarize.p) ? Solarize(image_, solarize.threshold, memory_) : image_;
  }
  StatusOr<Image> operator()(const step::RandomAdjustSharpness& sharpness) const {
    return place_.Happens(sharpness.p) ? AdjustSharpness(image_, sharpness.factor, memory_)
                                       : image_;
  }
  StatusOr<Image> operator()(const step::RandomAutocontrast& contrast) const {
    return place_.Happens(contrast.p) ? AutoContrast(image_, memory_) : image_;
  }
  StatusOr<Image> operator()(const step::RandomEqualize& equalize) const {
    return place_.Happens(equalize.p) ? Equalize(image_, memory_) : image_;
  }

  StatusOr<Image> operator()(const step::RandomApply& apply) const {
    Image image = image_;
    if (!place_.Happens(apply.p)) return image;
    for (const PlacedStep& step : placed_.held) {
      ASSIGN_OR_RETURN(image, runner_.Apply(step, image));
    }
    return image;
  }
  StatusOr<Image> operator()(const step::RandomChoice& choice) const {
    return runner_.Apply(placed_.held[Chosen(place_, placed_.held.size(), choice.weights)], image_);
  }
  StatusOr<Image> operator()(const step::RandomOrder&) const {
    std::array<uint8_t, kMostHeld> order;
    const std::span<uint8_t> used(order.data(), placed_.held.size());
    for (size_t i = 0; i < used.size(); ++i) used[i] = static_cast<uint8_t>(i);
    Shuffle(place_, used);
    Image image = image_;
    for (const uint8_t i : used) {
      ASSIGN_OR_RETURN(image, runner_.Apply(placed_.held[i], image));
    }
    return image;
  }

 private:
  const StepRunner& runner_;
  const PlacedStep& placed_;
  const Place& place_;
  const Image& image_;
  const ImageRules& rules_;
  ImageMemory& memory_;
};
}  // namespace

bool StepRunner::Skips(const PlacedStep& step) const {
  const Place place = {.key = key_, .number = step.place};
  const auto* horizontal = std::get_if<step::RandomHorizontalFlip>(&step.step);
  const auto* vertical = std::get_if<step::RandomVerticalFlip>(&step.step);
  return (horizontal != nullptr && !place.Happens(horizontal->p)) ||
         (vertical != nullptr && !place.Happens(vertical->p));
}

StatusOr<Image> StepRunner::Apply(const PlacedStep& step, const Image& image) const {
  const Place place = {.key = key_, .number = step.place};
  StatusOr<Image> result =
      std::visit(Visitor(*this, step, place, image, rules_, memory_), step.step);
  // A step that others hold has said which it is.
  if (result.ok() || !step.held.empty()) return result;
  return WithContext(result.status(), step.path);
}

}  // namespace loaderd::transform
