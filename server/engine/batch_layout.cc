// SPDX-License-Identifier: Apache-2.0
#include "server/engine/batch_layout.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace loaderd::engine {
namespace {

// All slots of a segment (1,027 at most) stay below 2^63 bytes.
constexpr uint64_t kMaxImagesBytes = uint64_t{1} << 52;

}  // namespace

std::string Describe(const FieldLayout& field) {
  return absl::StrCat(absl::StrJoin(field.shape, " x "), " ", std::string(DTypeName(field.dtype)));
}

StatusOr<BatchLayout> LayOutBatch(const transform::Recipe& recipe, uint32_t batch_size,
                                  std::optional<int64_t> mixed_classes) {
  const auto& sample = recipe.shape();
  if (!sample.has_value()) {
    return absl::InvalidArgumentError(
        "transform: the size of a sample depends on the image; end with CenterCrop, "
        "RandomResizedCrop or Resize((h, w))");
  }
  FieldLayout images{.name = "images", .dtype = recipe.dtype(), .shape = {batch_size}};
  images.shape.insert(images.shape.end(), sample->begin(), sample->end());
  uint64_t bytes = DTypeBytes(images.dtype);
  for (const int64_t extent : images.shape) {
    if (extent <= 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes) ||
        bytes > kMaxImagesBytes) {
      return absl::InvalidArgumentError(absl::StrCat("batch_size: one batch of ", Describe(images),
                                                     " is more than ", kMaxImagesBytes,
                                                     " bytes; ask for fewer or smaller samples"));
    }
  }
  const int64_t rows = batch_size;
  std::vector<FieldLayout> fields;
  fields.push_back(std::move(images));
  if (mixed_classes) {
    fields.push_back({.name = "labels", .dtype = DType::kFloat32, .shape = {rows, *mixed_classes}});
  } else {
    fields.push_back({.name = "labels", .dtype = DType::kInt64, .shape = {rows}});
  }
  fields.push_back({.name = "index", .dtype = DType::kInt64, .shape = {rows}});
  fields.push_back({.name = "pad", .dtype = DType::kBool, .shape = {rows}});
  return LayOut(std::move(fields));
}

std::span<uint8_t> SlotRows::Field(size_t field, uint32_t row) const {
  const FieldLayout& layout = layout_.fields[field];
  const uint64_t bytes = layout.RowBytes();
  return slot_.subspan(layout.offset + row * bytes, bytes);
}

std::span<uint8_t> SlotRows::field(size_t field, uint32_t count) const {
  const FieldLayout& layout = layout_.fields[field];
  return slot_.subspan(layout.offset, count * layout.RowBytes());
}

void SlotRows::Describe(uint32_t row, int64_t label, int64_t index, bool pad) const {
  std::memcpy(Field(kLabels, row).data(), &label, sizeof(label));
  std::memcpy(Field(kIndex, row).data(), &index, sizeof(index));
  Field(kPad, row)[0] = pad ? 1 : 0;
}

void SlotRows::Remove(std::span<const uint32_t> lost, uint32_t count) const {
  for (size_t field = 0; field < layout_.fields.size(); ++field) {
    const uint64_t bytes = layout_.fields[field].RowBytes();
    uint8_t* const rows = slot_.data() + layout_.fields[field].offset;
    uint64_t to = lost.empty() ? count : lost[0];
    for (size_t i = 0; i < lost.size(); ++i) {
      const uint64_t from = uint64_t{lost[i]} + 1;
      const uint64_t kept = (i + 1 < lost.size() ? lost[i + 1] : count) - from;
      std::memmove(rows + to * bytes, rows + from * bytes, kept * bytes);
      to += kept;
    }
  }
}

}  // namespace loaderd::engine
