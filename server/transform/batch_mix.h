// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/mix_params.h"
#include "server/transform/recipe.h"

namespace loaderd::transform {

// MixUp and CutMix of one batch, torchvision.transforms.v2's bit for bit: with `own` a sample and
// `before` the one before it (of the first, the last), MixUp makes before * (1 - lam) + own * lam,
// each operation in the tensor's dtype and the scalars in float32, as torch's on a CPU; CutMix
// copies. Labels: the same sum of their one-hot rows in float32. Immutable; any number of threads
// may apply it.
class BatchMix {
 public:
  // `recipe` is compiled of `spec` and of one size. kInvalidArgument with the step's path
  // ("batch_transform.mix_up: needs a float tensor; ...").
  static StatusOr<std::unique_ptr<const BatchMix>> Compile(const BatchStep& step,
                                                           const RecipeSpec& spec,
                                                           const Recipe& recipe);

  int64_t num_classes() const { return num_classes_; }
  const std::string& classes_path() const { return classes_path_; }  // of that field

  // Rows one after the other, of `count` samples, perhaps of none: images of the recipe's shape and
  // dtype, labels int64, 0 to num_classes - 1. The labels that are written are float32, num_classes
  // a row. What is read and what is written do not overlap, and may have any alignment.
  struct Source {
    uint32_t count = 0;
    std::span<const uint8_t> images;
    std::span<const uint8_t> labels;
  };
  struct Target {
    std::span<uint8_t> images;
    std::span<uint8_t> labels;
  };
  // Allocates nothing.
  void Apply(const BatchKey& key, const Source& from, const Target& to) const;

 private:
  struct Mix {
    uint32_t number = 0;  // of BatchKey::At
    bool cuts = false;
    double alpha = 1;
  };
  BatchMix() = default;
  Status Add(const std::string& path, const step::MixUp& step);
  Status Add(const std::string& path, const step::CutMix& step);
  void MixImages(double lam, const Source& from, const Target& to) const;
  void CutImages(const Cut& cut, const Source& from, const Target& to) const;
  void MixLabels(double lam, const Source& from, const Target& to) const;

  bool is_tensor_ = false;
  DType dtype_ = DType::kUint8;
  int channels_ = 0, height_ = 0, width_ = 0;
  int64_t num_classes_ = 0;
  std::string classes_path_;
  bool chooses_ = false;
  std::vector<Mix> mixes_;  // one, or where it chooses those to choose from
  std::vector<double> weights_;
};

}  // namespace loaderd::transform
