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
#include <utility>
#include <variant>
#include <vector>

namespace loaderd {

enum class DType { kUint8, kBool, kInt64, kFloat16, kBfloat16, kFloat32 };
uint64_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);  // numpy's name, or "bfloat16"

enum class ImageMode { kRgb, kL };
// What becomes of 16-bit grey: scaled to 8 bits, or clipped at 255 as Pillow does.
enum class WideMode { kScale, kClip };
enum class Filter { kNearest, kBox, kBilinear, kHamming, kBicubic, kLanczos };
enum class Reference { kPillow13, kPillow12 };
// Whether photographs much larger than what is made of them may be read in less than full detail.
enum class Fidelity { kExact, kFast };
// Of an image folder's entries whose names begin with a dot, and of __MACOSX.
enum class HiddenRule { kTorchvision, kSkip };  // classes and samples as all others; left out

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

using Interval = std::array<double, 2>;  // min <= max
using Fill = std::vector<uint8_t>;       // one value for all channels, or one a channel
using Point = std::array<double, 2>;     // x, y

struct Pad {
  Padding padding;
  Fill fill = {0};
  PadMode mode = PadMode::kConstant;
};
struct RandomCrop {
  Size size;
  Padding padding;
  bool pad_if_needed = false;
  Fill fill = {0};
  PadMode mode = PadMode::kConstant;
};
struct RandomVerticalFlip {
  double p = 0.5;
};
// Here and below a filter is kNearest, kBilinear or kBicubic.
struct RandomRotation {
  Interval degrees = {0, 0};
  Filter filter = Filter::kNearest;
  bool expand = false;
  std::optional<Point> center = std::nullopt;
  Fill fill = {0};
};
struct RandomAffine {
  Interval degrees = {0, 0};
  std::optional<std::array<double, 2>> translate =
      std::nullopt;                              // parts of width and height, 0 to 1
  std::optional<Interval> scale = std::nullopt;  // greater than 0
  std::optional<Interval> shear_x = std::nullopt;
  std::optional<Interval> shear_y = std::nullopt;
  Filter filter = Filter::kNearest;
  Fill fill = {0};
  std::optional<Point> center = std::nullopt;
};
struct RandomPerspective {
  double distortion_scale = 0.5;
  double p = 0.5;
  Filter filter = Filter::kBilinear;
  Fill fill = {0};
};
struct ColorJitter {  // nullopt: leaves it as it is
  std::optional<Interval> brightness = std::nullopt;
  std::optional<Interval> contrast = std::nullopt;
  std::optional<Interval> saturation = std::nullopt;
  std::optional<Interval> hue = std::nullopt;
};
struct RandomGrayscale {
  double p = 0.1;
};
struct GaussianBlur {
  std::array<int, 2> kernel = {1, 1};  // width, height; odd
  Interval sigma = {0.1, 2.0};         // greater than 0
};
struct RandomErasing {
  double p = 0.5;
  Interval scale = {0.02, 0.33};
  Interval ratio = {0.3, 3.3};
  std::vector<double> value = {0};  // one, or one a channel; none: normal noise
};
struct RandAugment {
  int num_ops = 2;
  int magnitude = 9;  // below num_magnitude_bins
  int num_magnitude_bins = 31;
  Filter filter = Filter::kNearest;
  Fill fill = {0};
};
struct TrivialAugmentWide {
  int num_magnitude_bins = 31;
  Filter filter = Filter::kNearest;
  Fill fill = {0};
};
enum class AugmentPolicy { kImageNet, kCifar10, kSvhn };
struct AutoAugment {
  AugmentPolicy policy = AugmentPolicy::kImageNet;
  Filter filter = Filter::kNearest;
  Fill fill = {0};
};
struct RandomInvert {
  double p = 0.5;
};
struct RandomPosterize {
  int bits = 8;  // 1 to 8
  double p = 0.5;
};
struct RandomSolarize {
  double threshold = 0;
  double p = 0.5;
};
struct RandomAdjustSharpness {
  double factor = 1;
  double p = 0.5;
};
struct RandomAutocontrast {
  double p = 0.5;
};
struct RandomEqualize {
  double p = 0.5;
};

struct Nested;  // a Step
struct RandomApply {
  std::vector<Nested> transforms;
  double p = 0.5;
};
struct RandomChoice {
  std::vector<Nested> transforms;    // not empty
  std::vector<double> weights = {};  // none, or one a transform; their sum is greater than 0
};
struct RandomOrder {
  std::vector<Nested> transforms;
};
}  // namespace step

using Step = std::variant<
    step::Resize, step::CenterCrop, step::RandomResizedCrop, step::RandomHorizontalFlip,
    step::Grayscale, step::PilToTensor, step::ToTensor, step::ConvertImageDtype, step::Normalize,
    step::Pad, step::RandomCrop, step::RandomVerticalFlip, step::RandomRotation, step::RandomAffine,
    step::RandomPerspective, step::ColorJitter, step::RandomGrayscale, step::GaussianBlur,
    step::RandomErasing, step::RandAugment, step::TrivialAugmentWide, step::AutoAugment,
    step::RandomInvert, step::RandomPosterize, step::RandomSolarize, step::RandomAdjustSharpness,
    step::RandomAutocontrast, step::RandomEqualize, step::RandomApply, step::RandomChoice,
    step::RandomOrder>;

struct step::Nested {
  Step step;
};

// Steps on whole batches, which mix each sample with the one before it.
namespace step {
struct MixUp {
  double alpha = 1;  // greater than 0
  int64_t num_classes = 1;
};
struct CutMix {
  double alpha = 1;
  int64_t num_classes = 1;
};
struct BatchChoice {
  std::vector<std::variant<MixUp, CutMix>> transforms;  // not empty; of one num_classes
  std::vector<double> weights = {};                     // as in RandomChoice
};
}  // namespace step
using BatchStep = std::variant<step::MixUp, step::CutMix, step::BatchChoice>;

struct RecipeSpec {
  ImageMode mode = ImageMode::kRgb;
  Reference reference = Reference::kPillow13;
  Fidelity fidelity = Fidelity::kExact;
  std::vector<Step> steps;
  bool exif_transpose = false;  // turn images upright, before the steps
  WideMode wide = WideMode::kScale;
};

struct DatasetSpec {
  // Exactly one of the two is set.
  std::string image_folder;  // absolute path, bytes
  std::string name;          // as the configuration defines it
  // Of image_folder only.
  HiddenRule hidden = HiddenRule::kTorchvision;
  std::vector<std::pair<std::string, int64_t>> class_to_idx = {};  // empty: by order of the names
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
