// SPDX-License-Identifier: Apache-2.0
#include "server/transform/first_cut.h"

#include <variant>

namespace loaderd::transform {
namespace {
// How much larger than the result a reduced image must be.
constexpr double kLeastLeft = 1.25;

Box WholeOf(Size size) { return {.height = size.height, .width = size.width}; }

// `inner` lies in a crop that lies at `outer`.
Box Within(const Box& outer, Box inner) {
  inner.top += outer.top;
  inner.left += outer.left;
  return inner;
}
}  // namespace

std::optional<Box> FirstCut::CropOf(size_t i, Size in) const {
  if (i >= steps_.size()) return std::nullopt;
  const PlacedStep& placed = steps_[i];
  const auto fits = [in](Size size) { return size.height <= in.height && size.width <= in.width; };
  if (const auto* center = std::get_if<step::CenterCrop>(&placed.step)) {
    if (!fits(center->size)) return std::nullopt;
    return CenterBox(in, center->size);
  }
  const auto* random = std::get_if<step::RandomCrop>(&placed.step);
  if (random == nullptr || random->padding != Padding{} || !fits(random->size)) return std::nullopt;
  return RandomCropBox({.key = key_, .number = placed.place}, in.height, in.width, random->size);
}

bool FirstCut::PlanResize(Size in, Size out, Filter filter) {
  resizing_ = {.in = in,
               .out = out,
               .wanted = WholeOf(out),
               .filter = filter,
               .reference = rules_.reference};
  return in.height > 0 && in.width > 0;
}

void FirstCut::PlanSteps(Size image) {
  count_ = 0;
  crop_ = WholeOf(image);
  if (steps_.empty()) return;
  const PlacedStep& first = steps_[0];
  if (const auto* crop = std::get_if<step::RandomResizedCrop>(&first.step)) {
    crop_ = RandomResizedCropBox(key_, first.place, image.height, image.width, crop->scale,
                                 crop->ratio);
    count_ = PlanResize({crop_.height, crop_.width}, crop->size, crop->filter) ? 1 : 0;
  } else if (const auto* resize = std::get_if<step::Resize>(&first.step)) {
    const WideSize wide = ResizedSize(*resize, image.height, image.width);
    if (!CheckPixels(wide, rules_.max_pixels, "").ok()) return;
    const Size out = {static_cast<int>(wide.height), static_cast<int>(wide.width)};
    if (!PlanResize(image, out, resize->filter)) return;
    count_ = 1;
    if (const std::optional<Box> box = CropOf(1, out)) {
      resizing_.wanted = *box;
      count_ = 2;
    }
  } else if (const std::optional<Box> box = CropOf(0, image)) {
    crop_ = *box;
    const Size size = {box->height, box->width};
    count_ = PlanResize(size, size, Filter::kNearest) ? 1 : 0;
  }
}

// The crop becomes a part, not of whole pixels, of the reduced image.
void FirstCut::Reduce(Size image, int reduction) {
  const Size reduced = ReducedSize(image, reduction);
  resizing_.in = reduced;
  resizing_.from = {.top = static_cast<double>(crop_.top) / reduction,
                    .left = static_cast<double>(crop_.left) / reduction,
                    .height = static_cast<double>(crop_.height) / reduction,
                    .width = static_cast<double>(crop_.width) / reduction};
  crop_ = WholeOf(reduced);
}

Box FirstCut::Plan(Size image, int reduction) {
  PlanSteps(image);
  if (count_ == 0) return WholeOf(image);
  if (reduction > 1) Reduce(image, reduction);
  return Within(crop_, memory_.resampler().Needed(resizing_));
}

PartChooser::Part FirstCut::Choose(Size image) {
  Part part = {.reduction = 1, .box = Plan(image, 1)};
  if (rules_.fidelity != Fidelity::kFast || count_ == 0 || resizing_.filter == Filter::kNearest) {
    return part;
  }
  for (const int reduction : {8, 4, 2}) {
    if (crop_.height < kLeastLeft * reduction * resizing_.out.height ||
        crop_.width < kLeastLeft * reduction * resizing_.out.width) {
      continue;
    }
    part = {.reduction = reduction, .box = Plan(image, reduction)};
    break;
  }
  return part;
}

StatusOr<Image> FirstCut::Apply(const Image& given, const Box& box, ByteBuffer* target) {
  // Seen from the crop.
  const Box at = {.top = box.top - crop_.top,
                  .left = box.left - crop_.left,
                  .height = box.height,
                  .width = box.width};
  if (resizing_.keeps_size()) {
    const Box& wanted = resizing_.wanted;
    return given.Crop({.top = wanted.top - at.top,
                       .left = wanted.left - at.left,
                       .height = wanted.height,
                       .width = wanted.width});
  }
  // Not taken where a view is the result: the memory after the current one may hold `given`.
  ByteBuffer& out = target != nullptr ? *target : memory_.Next();
  const StatusOr<Image> image =
      memory_.resampler().Resize(given, at, resizing_, rules_.max_pixels, out);
  return image.ok() ? image : WithContext(image.status(), steps_[0].path);
}

}  // namespace loaderd::transform
