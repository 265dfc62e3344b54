// SPDX-License-Identifier: Apache-2.0
#include "server/transform/compiler.h"

#include <array>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/transform/image_ops.h"
#include "server/transform/mix_params.h"

namespace loaderd::transform {
namespace {
// Places from here on are the batch steps'.
constexpr size_t kMaxSteps = kBatchPlaces;
// StepRunner has room for the order of this many.
constexpr size_t kMaxHeld = 256;
// Steps within steps are visited on the stack.
constexpr size_t kMaxDepth = 8;

const char* NameOf(const Step& step) {
  static constexpr const char* kNames[] = {"resize",
                                           "center_crop",
                                           "random_resized_crop",
                                           "random_horizontal_flip",
                                           "grayscale",
                                           "pil_to_tensor",
                                           "to_tensor",
                                           "convert_image_dtype",
                                           "normalize",
                                           "pad",
                                           "random_crop",
                                           "random_vertical_flip",
                                           "random_rotation",
                                           "random_affine",
                                           "random_perspective",
                                           "color_jitter",
                                           "random_grayscale",
                                           "gaussian_blur",
                                           "random_erasing",
                                           "rand_augment",
                                           "trivial_augment_wide",
                                           "auto_augment",
                                           "random_invert",
                                           "random_posterize",
                                           "random_solarize",
                                           "random_adjust_sharpness",
                                           "random_autocontrast",
                                           "random_equalize",
                                           "random_apply",
                                           "random_choice",
                                           "random_order"};
  static_assert(std::size(kNames) == std::variant_size_v<Step>);
  return kNames[step.index()];
}

Status Invalid(const std::string& text) { return absl::InvalidArgumentError(text); }

bool IsTensorStep(const Step& step) {
  return std::holds_alternative<step::PilToTensor>(step) ||
         std::holds_alternative<step::ToTensor>(step) ||
         std::holds_alternative<step::ConvertImageDtype>(step) ||
         std::holds_alternative<step::Normalize>(step) ||
         std::holds_alternative<step::RandomErasing>(step);
}
}  // namespace

Status Compiler::AddAll(const std::vector<Step>& steps) {
  if (steps.size() > kMaxSteps) {
    return Invalid(
        absl::StrCat("transform: has ", steps.size(), " steps; the limit is ", kMaxSteps));
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    RETURN_IF_ERROR(Add(absl::StrCat("transform[", i, "]"), steps[i]));
  }
  return absl::OkStatus();
}

Status Compiler::Add(const std::string& path, const Step& step) {
  place_ = next_place_++;
  path_ = absl::StrCat(path, ".", NameOf(step));
  const std::string whole = path_;
  if (place_ >= kMaxSteps) {
    return Invalid(absl::StrCat(whole, ": is step ", place_, " in all; the limit is ", kMaxSteps));
  }
  const Status status = std::visit(*this, step);
  if (status.ok()) return status;
  const std::string text(status.message());
  if (text.starts_with("transform[")) return status;  // of a step that this one holds
  const size_t word = text.find_first_of(": ");
  const bool is_field = word != std::string::npos && text[word] == ':';
  return Invalid(absl::StrCat(whole, is_field ? "." : ": ", text));
}

std::optional<std::vector<int64_t>> Compiler::Shape() const {
  if (!size_) return std::nullopt;
  return table_ ? std::vector<int64_t>{channels_, size_->height, size_->width}
                : std::vector<int64_t>{size_->height, size_->width, channels_};
}

Status Compiler::operator()(const step::Resize& resize) {
  RETURN_IF_ERROR(NeedsImage());
  if (std::holds_alternative<Size>(resize.size) || size_) {
    const Size in = size_.value_or(Size{1, 1});
    const WideSize out = ResizedSize(resize, in.height, in.width);
    RETURN_IF_ERROR(Fits(out));
    size_ = Size{static_cast<int>(out.height), static_cast<int>(out.width)};
  }
  return Push(resize);
}
Status Compiler::operator()(const step::CenterCrop& crop) { return PushFixed(crop.size, crop); }
Status Compiler::operator()(const step::RandomResizedCrop& crop) {
  return PushFixed(crop.size, crop);
}
Status Compiler::operator()(const step::Grayscale& grey) {
  RETURN_IF_ERROR(NeedsImage());
  channels_ = grey.channels;
  return Push(grey);
}

Status Compiler::operator()(const step::Pad& pad) {
  RETURN_IF_ERROR(NeedsImage());
  RETURN_IF_ERROR(FillFits(pad.fill));
  if (size_) {
    const WideSize out = {int64_t{size_->height} + pad.padding.top + pad.padding.bottom,
                          int64_t{size_->width} + pad.padding.left + pad.padding.right};
    RETURN_IF_ERROR(Fits(out, "padding"));
    size_ = Size{static_cast<int>(out.height), static_cast<int>(out.width)};
  }
  return Push(pad);
}
Status Compiler::operator()(const step::RandomCrop& crop) {
  RETURN_IF_ERROR(FillFits(crop.fill));
  return PushFixed(crop.size, crop);
}

Status Compiler::operator()(const step::RandomRotation& turn) {
  RETURN_IF_ERROR(FillFits(turn.fill));
  if (turn.expand) size_.reset();
  return Push(turn);
}
Status Compiler::operator()(const step::RandomAffine& affine) {
  RETURN_IF_ERROR(FillFits(affine.fill));
  return Push(affine);
}
Status Compiler::operator()(const step::RandomPerspective& view) {
  RETURN_IF_ERROR(FillFits(view.fill));
  return Push(view);
}
Status Compiler::operator()(const step::GaussianBlur& blur) {
  if (size_ && (blur.kernel[0] / 2 >= size_->width || blur.kernel[1] / 2 >= size_->height)) {
    return Invalid(absl::StrCat("kernel_size: must be less than twice the image, which is ",
                                size_->width, " x ", size_->height, ", is ", blur.kernel[0], " x ",
                                blur.kernel[1]));
  }
  return Push(blur);
}
Status Compiler::operator()(const step::RandAugment& augment) {
  RETURN_IF_ERROR(FillFits(augment.fill));
  return Push(augment);
}
Status Compiler::operator()(const step::TrivialAugmentWide& augment) {
  RETURN_IF_ERROR(FillFits(augment.fill));
  return Push(augment);
}
Status Compiler::operator()(const step::AutoAugment& augment) {
  RETURN_IF_ERROR(FillFits(augment.fill));
  return Push(augment);
}

Status Compiler::operator()(const step::RandomApply& apply) {
  RETURN_IF_ERROR(Push(step::RandomApply{.transforms = {}, .p = apply.p}));
  return Hold(apply.transforms, /*one_of_them=*/false, /*may_be_none=*/apply.p < 1);
}
Status Compiler::operator()(const step::RandomChoice& choice) {
  if (choice.transforms.empty()) return Invalid("transforms: must not be empty");
  if (!choice.weights.empty() && choice.weights.size() != choice.transforms.size()) {
    return Invalid(absl::StrCat("p: has ", choice.weights.size(), " weights for ",
                                choice.transforms.size(), " transforms"));
  }
  RETURN_IF_ERROR(Push(step::RandomChoice{.transforms = {}, .weights = choice.weights}));
  return Hold(choice.transforms, /*one_of_them=*/true, /*may_be_none=*/false);
}
Status Compiler::operator()(const step::RandomOrder& order) {
  RETURN_IF_ERROR(Push(step::RandomOrder{}));
  // A size that none of them changes stays, in whichever order.
  return Hold(order.transforms, /*one_of_them=*/true, /*may_be_none=*/true);
}

Status Compiler::Hold(const std::vector<step::Nested>& steps, bool one_of_them, bool may_be_none) {
  if (steps.size() > kMaxHeld) {
    return Invalid(absl::StrCat("transforms: has ", steps.size(), "; the limit is ", kMaxHeld));
  }
  if (++depth_ > kMaxDepth) {
    return Invalid(absl::StrCat("transforms: steps may hold steps ", kMaxDepth, " deep"));
  }
  const std::string path = path_;
  const std::optional<Size> size_before = size_;
  const int channels_before = channels_;
  std::vector<std::optional<Size>> sizes;
  if (may_be_none) sizes.push_back(size_before);
  std::vector<PlacedStep> outer = std::exchange(steps_, {});
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string sub = absl::StrCat(path, ".transforms[", i, "]");
    if (IsTensorStep(steps[i].step)) {
      return Invalid(absl::StrCat(sub, ".", NameOf(steps[i].step),
                                  ": only steps on images may stand here; put it behind"));
    }
    if (one_of_them) size_ = size_before;
    RETURN_IF_ERROR(Add(sub, steps[i].step));
    if (channels_ != channels_before) {
      return Invalid(absl::StrCat(sub, ".", NameOf(steps[i].step), ": makes ", channels_,
                                  " channels of ", channels_before,
                                  ", and not of every image; use RandomGrayscale or "
                                  "num_output_channels ",
                                  channels_before));
    }
    if (one_of_them) sizes.push_back(size_);
  }
  if (!one_of_them) sizes.push_back(size_);
  size_ = sizes[0];
  for (const std::optional<Size>& size : sizes) {
    if (size != size_) size_.reset();
  }
  outer.back().held = std::move(steps_);
  steps_ = std::move(outer);
  --depth_;
  return absl::OkStatus();
}

Status Compiler::operator()(const step::PilToTensor&) { return BecomeTensor(); }
Status Compiler::operator()(const step::ToTensor&) {
  RETURN_IF_ERROR(BecomeTensor());
  table_->ToFloat(DType::kFloat32);
  return absl::OkStatus();
}
Status Compiler::operator()(const step::ConvertImageDtype& convert) {
  if (!table_) return Invalid("needs a tensor; put PILToTensor or ToTensor before it");
  if (convert.dtype == table_->dtype()) return absl::OkStatus();
  if (convert.dtype == DType::kUint8) {
    return Invalid("dtype: uint8 only from uint8; leave out the step that makes floats");
  }
  table_->ToFloat(convert.dtype);
  for (PlacedErasure& erasure : erasures_) erasure.later.ToFloat(convert.dtype);
  return absl::OkStatus();
}
Status Compiler::operator()(const step::Normalize& normalize) {
  if (!table_) return Invalid("needs a tensor; put ToTensor before it");
  if (table_->dtype() == DType::kUint8) {
    return Invalid("needs a float tensor; put ToTensor or ConvertImageDtype before it");
  }
  RETURN_IF_ERROR(CountFits("mean", normalize.mean.size()));
  RETURN_IF_ERROR(CountFits("std", normalize.std.size()));
  RETURN_IF_ERROR(table_->Normalize(normalize.mean, normalize.std));
  for (PlacedErasure& erasure : erasures_) {
    erasure.later.Normalize(normalize.mean, normalize.std);
  }
  return absl::OkStatus();
}
Status Compiler::operator()(const step::RandomErasing& erase) {
  if (!table_) return Invalid("needs a tensor; put PILToTensor or ToTensor before it");
  if (!erase.value.empty()) RETURN_IF_ERROR(CountFits("value", erase.value.size()));
  for (const double value : erase.value) {
    if (table_->dtype() == DType::kUint8 && !(value >= 0 && value <= 255)) {
      return Invalid(absl::StrCat("value: must be 0 to 255 in a uint8 tensor, is ", value));
    }
  }
  erasures_.push_back({.place = place_, .step = erase, .later = TensorChain(table_->dtype())});
  return absl::OkStatus();
}

Status Compiler::Push(ImageStep step) {
  RETURN_IF_ERROR(NeedsImage());
  steps_.push_back({.place = place_, .path = path_, .step = std::move(step), .held = {}});
  return absl::OkStatus();
}
Status Compiler::PushFixed(Size size, ImageStep step) {
  RETURN_IF_ERROR(NeedsImage());
  RETURN_IF_ERROR(Fits({size.height, size.width}));
  size_ = size;
  return Push(std::move(step));
}

Status Compiler::FillFits(const step::Fill& fill) const { return CountFits("fill", fill.size()); }
Status Compiler::NeedsImage() const {
  if (!table_) return absl::OkStatus();
  return Invalid("works on images, not on tensors; put it before PILToTensor or ToTensor");
}
Status Compiler::BecomeTensor() {
  if (table_) return Invalid("the image is a tensor already; leave out one of the two");
  table_.emplace(channels_);
  return absl::OkStatus();
}
Status Compiler::Fits(const WideSize& size, const char* field) const {
  const Status status = CheckPixels(size, max_pixels_, "its result");
  return status.ok() ? status : Invalid(absl::StrCat(field, ": ", MessageOf(status)));
}
Status Compiler::CountFits(const char* field, size_t count) const {
  if (count == 1 || count == static_cast<size_t>(channels_)) return absl::OkStatus();
  return Invalid(absl::StrCat(field, ": has ", count, " values for ", channels_,
                              channels_ == 1 ? " channel" : " channels",
                              "; give one for all, or one a channel"));
}

}  // namespace loaderd::transform
