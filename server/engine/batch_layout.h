// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/recipe.h"

namespace loaderd::engine {

// "images", "labels" (int64, or where they are mixed float32 of so many classes), "index" (int64),
// "pad" (bool). kInvalidArgument when the recipe fixes no size, or when a batch is larger than any
// memory.
StatusOr<BatchLayout> LayOutBatch(const transform::Recipe& recipe, uint32_t batch_size,
                                  std::optional<int64_t> mixed_classes = std::nullopt);

// "64 x 224 x 224 x 3 uint8": a field as messages say it.
std::string Describe(const FieldLayout& field);

// Where row `row` of a slot's batch lies. The fields are those of LayOutBatch. Rows never overlap,
// so that threads may write different ones at once.
class SlotRows {
 public:
  static constexpr size_t kImages = 0, kLabels = 1, kIndex = 2, kPad = 3;

  SlotRows(const BatchLayout& layout, std::span<uint8_t> slot) : layout_(layout), slot_(slot) {}

  std::span<uint8_t> image(uint32_t row) const { return Field(kImages, row); }
  // The first `count` rows of a field.
  std::span<uint8_t> field(size_t field, uint32_t count) const;
  // Where labels are not mixed.
  void Describe(uint32_t row, int64_t label, int64_t index, bool pad) const;
  // Removes the rows in `lost` (rising) from the first `count` rows; later ones move up.
  void Remove(std::span<const uint32_t> lost, uint32_t count) const;

 private:
  std::span<uint8_t> Field(size_t field, uint32_t row) const;
  const BatchLayout& layout_;
  std::span<uint8_t> slot_;
};

}  // namespace loaderd::engine
