// SPDX-License-Identifier: Apache-2.0
// The values that cross module borders: what a job asks for once it has been checked (plan/ makes
// them, dataset/, transform/ and engine/ read them), and how a batch is laid out. Plain values: no
// behaviour, no invariants beyond those written here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace loaderd {

enum class DType { kUint8, kBool, kInt64, kFloat16, kBfloat16, kFloat32 };
uint64_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);  // numpy's name, or "bfloat16"

enum class ImageMode { kRgb, kL };
enum class Filter { kNearest, kBox, kBilinear, kHamming, kBicubic, kLanczos };
enum class Reference { kPillow13, kPillow12 };

// Pixels, 1 to 65535.
struct Size {
  int height = 0;
  int width = 0;
  friend bool operator==(const Size&, const Size&) = default;
};

// Pixels on each side, 0 to 65535.
struct Padding {
  int left = 0;
  int top = 0;
  int right = 0;
  int bottom = 0;
  friend bool operator==(const Padding&, const Padding&) = default;
};
enum class PadMode { kConstant, kEdge, kReflect, kSymmetric };

// torchvision's transforms, checked one by one; whether their sequence makes sense is
// Recipe::Compile's to say.
namespace step {
struct Resize {
  std::variant<int, Size> size;  // int: the shorter edge
  std::optional<int> max_size;   // of the longer edge; only with an int, and greater than it
  Filter filter = Filter::kBilinear;
};
struct CenterCrop {
  Size size;
};
struct RandomResizedCrop {
  Size size;
  std::array<double, 2> scale = {0.08, 1.0};
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};
  Filter filter = Filter::kBilinear;
};
struct RandomHorizontalFlip {
  double p = 0.5;
};
struct Grayscale {
  int channels = 1;  // 1 or 3
};
struct PilToTensor {};
struct ToTensor {};
struct ConvertImageDtype {
  DType dtype = DType::kFloat32;  // kUint8 or a float
};
struct Normalize {
  std::vector<double> mean;  // 1 or as many as channels, as std; finite
  std::vector<double> std;   // not 0
};
}  // namespace step

using Step = std::variant<step::Resize, step::CenterCrop, step::RandomResizedCrop,
                          step::RandomHorizontalFlip, step::Grayscale, step::PilToTensor,
                          step::ToTensor, step::ConvertImageDtype, step::Normalize>;

struct RecipeSpec {
  ImageMode mode = ImageMode::kRgb;
  Reference reference = Reference::kPillow13;
  std::vector<Step> steps;
};

struct DatasetSpec {
  // Exactly one of the two is set.
  std::string image_folder;  // absolute path, bytes
  std::string name;          // as the configuration defines it
};

enum class BadSamplePolicy { kFail, kSkip, kSubstitute };

// One tensor of a batch: row-major and contiguous; shape[0] is the batch's capacity.
struct FieldLayout {
  std::string name;
  DType dtype = DType::kUint8;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // from the slot's begin; a multiple of 64

  uint64_t RowBytes() const;  // of one sample
  uint64_t Bytes() const { return RowBytes() * static_cast<uint64_t>(shape[0]); }
};

struct BatchLayout {
  std::vector<FieldLayout>
      fields;  // the dataset's fields in its order, then "index" (int64) and "pad" (bool)
  uint64_t slot_bytes = 0;  // a multiple of the page size
};

// Places fields one after the other at multiples of 64 bytes; their offsets are set here. Sizes
// must have been bounded before: batch 65,536 and 65,535 x 65,535 pixels of 4 bytes a channel do
// not overflow.
BatchLayout LayOut(std::vector<FieldLayout> fields);

}  // namespace loaderd
