// SPDX-License-Identifier: Apache-2.0
#include "server/transform/recipe.h"

#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/transform/image_decoder.h"
#include "server/transform/image_ops.h"
#include "server/transform/orientation.h"
#include "server/transform/tensor_table.h"

namespace loaderd::transform {
namespace {
// Draw() has 16 bits for the place of a step.
constexpr size_t kMaxSteps = 65536;
// Enough for 33 million RGB pixels. What is larger is given back after each sample: one giant must
// not pin its memory to every thread that ever met one.
constexpr size_t kKeptBytes = size_t{96} << 20;

using ImageStep = std::variant<step::Resize, step::CenterCrop, step::RandomResizedCrop,
                               step::RandomHorizontalFlip, step::Grayscale>;

struct PlacedStep {
  uint32_t place = 0;  // in the recipe as asked for: the key of its random draws
  ImageStep step;
};

const char* NameOf(const Step& step) {
  static constexpr const char* kNames[] = {
      "resize",    "center_crop",   "random_resized_crop", "random_horizontal_flip",
      "grayscale", "pil_to_tensor", "to_tensor",           "convert_image_dtype",
      "normalize"};
  static_assert(std::size(kNames) == std::variant_size_v<Step>);
  return kNames[step.index()];
}

std::string PathOf(uint32_t place, const Step& step) {
  return absl::StrCat("transform[", place, "].", NameOf(step));
}

Status Invalid(const std::string& text) { return absl::InvalidArgumentError(text); }
}  // namespace

Scratch::Scratch() : impl_(std::make_unique<Impl>()) {}
Scratch::~Scratch() = default;

struct Recipe::Impl {
  DecodeRules decode;  // all but the deadline
  uint64_t max_decode_ms = 0;
  const Clock* clock = nullptr;
  ImageRules rules;
  std::vector<PlacedStep> steps;
  bool is_tensor = false;
  TensorTable table{3};
  std::optional<std::vector<int64_t>> shape;

  StatusOr<Image> Run(std::span<const uint8_t> encoded, const SampleKey& key,
                      ImageMemory& memory) const;
  void Write(const Image& image, uint8_t* out) const;
};

namespace {

// Takes the steps in order and knows what the image or tensor is after each of them.
class Compiler {
 public:
  Compiler(const RecipeSpec& spec, const Limits& limits)
      : channels_(spec.mode == ImageMode::kL ? 1 : 3), max_pixels_(limits.max_pixels) {}

  Status operator()(const step::Resize& resize) {
    RETURN_IF_ERROR(NeedsImage());
    const bool is_fixed = std::holds_alternative<Size>(resize.size);
    if (is_fixed || size_) {
      const Size in = size_.value_or(Size{1, 1});
      const WideSize out = ResizedSize(resize, in.height, in.width);
      RETURN_IF_ERROR(Fits(out));
      size_ = Size{static_cast<int>(out.height), static_cast<int>(out.width)};
    }
    steps_.push_back({place_, resize});
    return absl::OkStatus();
  }
  Status operator()(const step::CenterCrop& crop) {
    RETURN_IF_ERROR(NeedsImage());
    RETURN_IF_ERROR(Fits({crop.size.height, crop.size.width}));
    size_ = crop.size;
    steps_.push_back({place_, crop});
    return absl::OkStatus();
  }
  Status operator()(const step::RandomResizedCrop& crop) {
    RETURN_IF_ERROR(NeedsImage());
    RETURN_IF_ERROR(Fits({crop.size.height, crop.size.width}));
    size_ = crop.size;
    steps_.push_back({place_, crop});
    return absl::OkStatus();
  }
  Status operator()(const step::RandomHorizontalFlip& flip) {
    RETURN_IF_ERROR(NeedsImage());
    steps_.push_back({place_, flip});
    return absl::OkStatus();
  }
  Status operator()(const step::Grayscale& grey) {
    RETURN_IF_ERROR(NeedsImage());
    channels_ = grey.channels;
    steps_.push_back({place_, grey});
    return absl::OkStatus();
  }
  Status operator()(const step::PilToTensor&) { return BecomeTensor(); }
  Status operator()(const step::ToTensor&) {
    RETURN_IF_ERROR(BecomeTensor());
    table_->ToFloat(DType::kFloat32);
    return absl::OkStatus();
  }
  Status operator()(const step::ConvertImageDtype& convert) {
    if (!table_) return Invalid("needs a tensor; put PILToTensor or ToTensor before it");
    if (convert.dtype == table_->dtype()) return absl::OkStatus();
    if (convert.dtype == DType::kUint8) {
      return Invalid("dtype: uint8 only from uint8; leave out the step that makes floats");
    }
    table_->ToFloat(convert.dtype);
    return absl::OkStatus();
  }
  Status operator()(const step::Normalize& normalize) {
    if (!table_) return Invalid("needs a tensor; put ToTensor before it");
    if (table_->dtype() == DType::kUint8) {
      return Invalid("needs a float tensor; put ToTensor or ConvertImageDtype before it");
    }
    RETURN_IF_ERROR(CountFits("mean", normalize.mean.size()));
    RETURN_IF_ERROR(CountFits("std", normalize.std.size()));
    return table_->Normalize(normalize.mean, normalize.std);
  }

  Status Add(uint32_t place, const Step& step) {
    place_ = place;
    const Status status = std::visit(*this, step);
    if (status.ok()) return status;
    // A message that begins with a field ("mean: ...") goes on with the path, any other after a
    // colon.
    const std::string text(status.message());
    const size_t word = text.find_first_of(": ");
    const bool is_field = word != std::string::npos && text[word] == ':';
    return Invalid(absl::StrCat(PathOf(place, step), is_field ? "." : ": ", text));
  }

  void MoveTo(std::vector<PlacedStep>& steps, TensorTable& table, bool& is_tensor,
              std::optional<std::vector<int64_t>>& shape) {
    steps = std::move(steps_);
    is_tensor = table_.has_value();
    if (is_tensor) table = *std::move(table_);
    if (!size_) return;
    shape = is_tensor ? std::vector<int64_t>{channels_, size_->height, size_->width}
                      : std::vector<int64_t>{size_->height, size_->width, channels_};
  }

 private:
  Status NeedsImage() const {
    if (!table_) return absl::OkStatus();
    return Invalid("works on images, not on tensors; put it before PILToTensor or ToTensor");
  }
  Status BecomeTensor() {
    if (table_) return Invalid("the image is a tensor already; leave out one of the two");
    table_.emplace(channels_);
    return absl::OkStatus();
  }
  Status Fits(const WideSize& size) const {
    const Status status = CheckPixels(size, max_pixels_, "its result");
    return status.ok() ? status : Invalid("size: " + std::string(status.message()));
  }
  Status CountFits(const char* field, size_t count) const {
    if (count == 1 || count == static_cast<size_t>(channels_)) return absl::OkStatus();
    return Invalid(absl::StrCat(field, ": has ", count, " values for ", channels_,
                                channels_ == 1 ? " channel" : " channels",
                                "; give one for all, or one a channel"));
  }

  int channels_;
  const uint64_t max_pixels_;
  uint32_t place_ = 0;
  std::optional<Size> size_;
  std::vector<PlacedStep> steps_;
  std::optional<TensorTable> table_;  // once the image is a tensor
};

// Applies one image step after the other to one sample.
class Runner {
 public:
  Runner(const ImageRules& rules, const SampleKey& key, ImageMemory& memory)
      : rules_(rules), key_(key), memory_(memory) {}

  StatusOr<Image> operator()(const step::Resize& resize) {
    return Resize(image_, resize, rules_, memory_);
  }
  StatusOr<Image> operator()(const step::CenterCrop& crop) {
    return CenterCrop(image_, crop.size, rules_, memory_);
  }
  StatusOr<Image> operator()(const step::RandomResizedCrop& crop) {
    const Box box =
        RandomResizedCropBox(key_, place_, image_.height, image_.width, crop.scale, crop.ratio);
    return CropAndResize(image_, box, crop.size, crop.filter, rules_, memory_);
  }
  StatusOr<Image> operator()(const step::RandomHorizontalFlip& flip) {
    return RandomFlip(key_, place_, flip.p) ? FlipHorizontally(image_, memory_) : image_;
  }
  StatusOr<Image> operator()(const step::Grayscale& grey) {
    return ToGrey(image_, grey.channels, memory_);
  }

  StatusOr<Image> Apply(const PlacedStep& step, const Image& image) {
    place_ = step.place;
    image_ = image;
    return std::visit(*this, step.step);
  }

 private:
  const ImageRules& rules_;
  const SampleKey& key_;
  ImageMemory& memory_;
  uint32_t place_ = 0;
  Image image_;
};

Status AtStep(const PlacedStep& placed, const Status& status) {
  const Step step = std::visit([](const auto& s) { return Step(s); }, placed.step);
  return WithContext(status, PathOf(placed.place, step));
}
}  // namespace

Recipe::Recipe(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Recipe::~Recipe() = default;

StatusOr<std::unique_ptr<const Recipe>> Recipe::Compile(const RecipeSpec& spec,
                                                        const Limits& limits) {
  if (spec.steps.size() > kMaxSteps) {
    return Invalid(
        absl::StrCat("transform: has ", spec.steps.size(), " steps; the limit is ", kMaxSteps));
  }
  Compiler compiler(spec, limits);
  for (size_t place = 0; place < spec.steps.size(); ++place) {
    RETURN_IF_ERROR(compiler.Add(static_cast<uint32_t>(place), spec.steps[place]));
  }
  auto impl = std::make_unique<Impl>();
  impl->decode = {.mode = spec.mode,
                  .wide = spec.wide,
                  .exif_transpose = spec.exif_transpose,
                  .max_pixels = limits.max_pixels};
  impl->max_decode_ms = limits.max_decode_ms;
  impl->clock = limits.clock;
  impl->rules = {.reference = spec.reference, .max_pixels = limits.max_pixels};
  compiler.MoveTo(impl->steps, impl->table, impl->is_tensor, impl->shape);
  return std::unique_ptr<const Recipe>(new Recipe(std::move(impl)));
}

DType Recipe::dtype() const { return impl_->is_tensor ? impl_->table.dtype() : DType::kUint8; }

const std::optional<std::vector<int64_t>>& Recipe::shape() const { return impl_->shape; }

StatusOr<Image> Recipe::Impl::Run(std::span<const uint8_t> encoded, const SampleKey& key,
                                  ImageMemory& memory) const {
  const DecodeDeadline deadline(*clock, max_decode_ms);
  DecodeRules decode_rules = decode;
  decode_rules.deadline = &deadline;
  ASSIGN_OR_RETURN(const Decoded decoded, DecodeImage(encoded, decode_rules, memory.Next()));
  Image image = decoded.image;
  if (decoded.orientation != 1) image = Upright(image, decoded.orientation, memory.Next());
  Runner runner(rules, key, memory);
  for (const PlacedStep& step : steps) {
    StatusOr<Image> result = runner.Apply(step, image);
    if (!result.ok()) return AtStep(step, result.status());
    image = *result;
  }
  return image;
}

void Recipe::Impl::Write(const Image& image, uint8_t* out) const {
  if (is_tensor) {
    table.Apply(image, out);
    return;
  }
  for (int y = 0; y < image.height; ++y, out += image.RowBytes()) {
    std::memcpy(out, image.Row(y), image.RowBytes());
  }
}

Status Recipe::Apply(std::span<const uint8_t> encoded, const SampleKey& key, Scratch& scratch,
                     std::span<uint8_t> out) const {
  ImageMemory& memory = scratch.impl().memory;
  const StatusOr<Image> image = impl_->Run(encoded, key, memory);
  if (!image.ok()) {
    memory.Trim(kKeptBytes);
    return image.status();
  }
  const uint64_t bytes = image->Bytes() * DTypeBytes(dtype());
  if (!impl_->shape || bytes != out.size()) {
    return absl::InternalError(
        absl::StrCat("a sample of ", bytes, " bytes was given room for ", out.size()));
  }
  impl_->Write(*image, out.data());
  memory.Trim(kKeptBytes);
  return absl::OkStatus();
}

StatusOr<Recipe::Output> Recipe::ApplyToNew(std::span<const uint8_t> encoded, const SampleKey& key,
                                            Scratch& scratch) const {
  ImageMemory& memory = scratch.impl().memory;
  const StatusOr<Image> image = impl_->Run(encoded, key, memory);
  if (!image.ok()) {
    memory.Trim(kKeptBytes);
    return image.status();
  }
  Output output;
  output.shape = impl_->is_tensor
                     ? std::vector<int64_t>{image->channels, image->height, image->width}
                     : std::vector<int64_t>{image->height, image->width, image->channels};
  output.bytes.resize(image->Bytes() * DTypeBytes(dtype()));
  impl_->Write(*image, output.bytes.data());
  memory.Trim(kKeptBytes);
  return output;
}

}  // namespace loaderd::transform
