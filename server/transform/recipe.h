// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "server/base/clock.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/random.h"

namespace loaderd::transform {

struct Limits {
  uint64_t max_pixels = 178956970;  // an image that claims more is refused before memory is taken;
                                    // Pillow's error limit
  uint64_t max_decode_ms = 30000;   // a sample, where the codec can be stopped
  const Clock* clock = &Clock::Real();  // outlives the recipe
};

// The memory that one thread reuses from sample to sample. Not thread-safe.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Compiled decode and augment steps: encoded bytes -> tensor bytes. Immutable; any number of
// threads may apply it. Every step equals torchvision on PIL images bit for bit.
class Recipe {
 public:
  // kInvalidArgument with the step's path ("transform[1].normalize: needs a tensor; put ToTensor
  // before it").
  static StatusOr<std::unique_ptr<const Recipe>> Compile(const RecipeSpec& spec,
                                                         const Limits& limits);
  ~Recipe();

  DType dtype() const;
  // Of one sample, without the batch: {height, width, channels} as uint8 without tensor conversion,
  // {channels, height, width} with it. nullopt when it depends on the image (no step fixes the
  // size).
  const std::optional<std::vector<int64_t>>& shape() const;

  // `out` is exactly one sample of shape() and dtype(); on an error its content is undefined. A
  // data fault is kDataLoss with the reason (the caller adds the name). Allocates nothing once
  // `scratch` has grown (libjpeg's own working memory apart); buffers over 96 MiB are given back
  // after each sample.
  Status Apply(std::span<const uint8_t> encoded, const SampleKey& key, Scratch& scratch,
               std::span<uint8_t> out) const;

  struct Output {
    std::vector<int64_t> shape;
    std::vector<uint8_t> bytes;
  };
  // For recipes of any shape; allocates.
  StatusOr<Output> ApplyToNew(std::span<const uint8_t> encoded, const SampleKey& key,
                              Scratch& scratch) const;

 private:
  struct Impl;
  explicit Recipe(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace loaderd::transform
