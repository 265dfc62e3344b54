// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/image.h"
#include "server/transform/image_decoder.h"
#include "server/transform/image_ops.h"
#include "server/transform/resample.h"
#include "server/transform/step_runner.h"

namespace loaderd::transform {

// The first steps of a recipe on one sample, where they are a crop, a resize, or both, done as one:
// what they need of the image is known before it is decoded, and nothing else is decoded or
// computed. Gives exactly what the steps one after the other give.
class FirstCut final : public PartChooser {
 public:
  // All outlive it.
  FirstCut(std::span<const PlacedStep> steps, const ImageRules& rules, const SampleKey& key,
           ImageMemory& memory)
      : steps_(steps), rules_(rules), key_(key), memory_(memory) {}

  // Of an image of this size the steps need this part; all of it, where they cannot be done as one.
  // Reduced only by Fidelity::kFast, and only so far that resizing still makes it smaller.
  Part Choose(Size image) override;

  // What Choose() does, with an image that comes reduced by so much. The part of it that is needed.
  Box Plan(Size image, int reduction);

  // Steps that Apply() does. 0: they begin with something else, or meet an error which they tell
  // best themselves. Valid after Plan().
  size_t count() const { return count_; }

  // `given` lies at `box` in the image that was planned for, and holds what is needed.
  // The result is in `target` (null: in the memory's next buffer), or a view of `given`.
  StatusOr<Image> Apply(const Image& given, const Box& box, ByteBuffer* target);

 private:
  void PlanSteps(Size image);
  void Reduce(Size image, int reduction);
  // Of an image of size `in`, the part that step `i` cuts out; nullopt when it is no crop, or the
  // image is too small for it.
  std::optional<Box> CropOf(size_t i, Size in) const;
  bool PlanResize(Size in, Size out, Filter filter);

  const std::span<const PlacedStep> steps_;
  const ImageRules& rules_;
  const SampleKey& key_;
  ImageMemory& memory_;
  size_t count_ = 0;
  Box crop_;           // of the image
  Resizing resizing_;  // of the crop; in == out: there is none
};

}  // namespace loaderd::transform
