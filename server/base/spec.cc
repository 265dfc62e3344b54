// SPDX-License-Identifier: Apache-2.0
#include "server/base/spec.h"

#include <utility>

namespace loaderd {
namespace {
constexpr uint64_t kFieldAlignment = 64;
constexpr uint64_t kPageBytes = 4096;  // what memfd slots begin on; x86-64 and the usual arm64

uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
}  // namespace

uint64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kBool: return 1;
    case DType::kFloat16:
    case DType::kBfloat16: return 2;
    case DType::kFloat32: return 4;
    case DType::kInt64: return 8;
  }
  return 0;
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kUint8: return "uint8";
    case DType::kBool: return "bool";
    case DType::kFloat16: return "float16";
    case DType::kBfloat16: return "bfloat16";
    case DType::kFloat32: return "float32";
    case DType::kInt64: return "int64";
  }
  return "";
}

uint64_t FieldLayout::RowBytes() const {
  uint64_t bytes = DTypeBytes(dtype);
  for (size_t i = 1; i < shape.size(); ++i) bytes *= static_cast<uint64_t>(shape[i]);
  return bytes;
}

BatchLayout LayOut(std::vector<FieldLayout> fields) {
  BatchLayout layout{.fields = std::move(fields)};
  uint64_t end = 0;
  for (FieldLayout& field : layout.fields) {
    field.offset = RoundUp(end, kFieldAlignment);
    end = field.offset + field.Bytes();
  }
  layout.slot_bytes = RoundUp(end == 0 ? 1 : end, kPageBytes);
  return layout;
}

}  // namespace loaderd
