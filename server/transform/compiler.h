// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/erase.h"
#include "server/transform/recipe.h"
#include "server/transform/step_runner.h"
#include "server/transform/tensor_table.h"

namespace loaderd::transform {

// Takes the steps of a recipe in order and knows what the image or tensor is after each of them.
class Compiler {
 public:
  Compiler(ImageMode mode, const Limits& limits)
      : channels_(mode == ImageMode::kL ? 1 : 3), max_pixels_(limits.max_pixels) {}

  // kInvalidArgument with the step's path.
  Status AddAll(const std::vector<Step>& steps);

  std::vector<PlacedStep>& steps() { return steps_; }
  std::optional<TensorTable>& table() { return table_; }  // once the image is a tensor
  std::vector<PlacedErasure>& erasures() { return erasures_; }
  // Of one sample; nullopt when it depends on the image.
  std::optional<std::vector<int64_t>> Shape() const;

  // One each for std::visit. A message that begins with a field ("mean: ...") goes on with the
  // step's path.
  Status operator()(const step::Resize& resize);
  Status operator()(const step::CenterCrop& crop);
  Status operator()(const step::RandomResizedCrop& crop);
  Status operator()(const step::Grayscale& grey);
  Status operator()(const step::Pad& pad);
  Status operator()(const step::RandomCrop& crop);
  Status operator()(const step::RandomRotation& turn);
  Status operator()(const step::RandomAffine& affine);
  Status operator()(const step::RandomPerspective& view);
  Status operator()(const step::GaussianBlur& blur);
  Status operator()(const step::RandAugment& augment);
  Status operator()(const step::TrivialAugmentWide& augment);
  Status operator()(const step::AutoAugment& augment);
  Status operator()(const step::RandomApply& apply);
  Status operator()(const step::RandomChoice& choice);
  Status operator()(const step::RandomOrder& order);
  Status operator()(const step::PilToTensor&);
  Status operator()(const step::ToTensor&);
  Status operator()(const step::ConvertImageDtype& convert);
  Status operator()(const step::Normalize& normalize);
  Status operator()(const step::RandomErasing& erase);
  // All others leave the size and the channels as they are.
  template <typename Kept>
  Status operator()(const Kept& step) {
    return Push(step);
  }

 private:
  Status Add(const std::string& path, const Step& step);
  // The steps that another holds: each from where that one stands ("one of them"), or each after
  // the one before it.
  Status Hold(const std::vector<step::Nested>& steps, bool one_of_them, bool may_be_none);

  Status Push(ImageStep step);
  Status PushFixed(Size size, ImageStep step);
  Status FillFits(const step::Fill& fill) const;
  Status NeedsImage() const;
  Status BecomeTensor();
  Status Fits(const WideSize& size, const char* field = "size") const;
  Status CountFits(const char* field, size_t count) const;

  int channels_;
  const uint64_t max_pixels_;
  uint32_t place_ = 0;       // of the step being added
  uint32_t next_place_ = 0;  // of the step after it
  size_t depth_ = 0;
  std::string path_;
  std::optional<Size> size_;
  std::vector<PlacedStep> steps_;
  std::optional<TensorTable> table_;
  std::vector<PlacedErasure> erasures_;
};

}  // namespace loaderd::transform
