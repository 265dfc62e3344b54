// SPDX-License-Identifier: Apache-2.0
#include "server/transform/recipe.h"

#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/transform/compiler.h"
#include "server/transform/erase.h"
#include "server/transform/first_cut.h"
#include "server/transform/image_decoder.h"
#include "server/transform/image_ops.h"
#include "server/transform/orientation.h"
#include "server/transform/step_runner.h"
#include "server/transform/tensor_table.h"

namespace loaderd::transform {
namespace {
// Enough for 33 million RGB pixels. What is larger is given back after each sample: one giant must
// not pin its memory to every thread that ever met one.
constexpr size_t kKeptBytes = size_t{96} << 20;
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
  std::vector<PlacedErasure> erasures;
  std::optional<std::vector<int64_t>> shape;

  // The last image; in `target` (or empty) where that saves a copy.
  StatusOr<Image> Run(std::span<const uint8_t> encoded, const SampleKey& key, ImageMemory& memory,
                      std::span<uint8_t> target) const;
  void Write(const Image& image, const SampleKey& key, uint8_t* out) const;
};

Recipe::Recipe(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Recipe::~Recipe() = default;

StatusOr<std::unique_ptr<const Recipe>> Recipe::Compile(const RecipeSpec& spec,
                                                        const Limits& limits) {
  Compiler compiler(spec.mode, limits);
  RETURN_IF_ERROR(compiler.AddAll(spec.steps));
  auto impl = std::make_unique<Impl>();
  impl->decode = {.mode = spec.mode,
                  .wide = spec.wide,
                  .exif_transpose = spec.exif_transpose,
                  .max_pixels = limits.max_pixels};
  impl->max_decode_ms = limits.max_decode_ms;
  impl->clock = limits.clock;
  impl->rules = {
      .reference = spec.reference, .fidelity = spec.fidelity, .max_pixels = limits.max_pixels};
  impl->shape = compiler.Shape();
  impl->steps = std::move(compiler.steps());
  impl->is_tensor = compiler.table().has_value();
  if (impl->is_tensor) impl->table = *std::move(compiler.table());
  impl->erasures = std::move(compiler.erasures());
  return std::unique_ptr<const Recipe>(new Recipe(std::move(impl)));
}

DType Recipe::dtype() const { return impl_->is_tensor ? impl_->table.dtype() : DType::kUint8; }

const std::optional<std::vector<int64_t>>& Recipe::shape() const { return impl_->shape; }

StatusOr<Image> Recipe::Impl::Run(std::span<const uint8_t> encoded, const SampleKey& key,
                                  ImageMemory& memory, std::span<uint8_t> target) const {
  const DecodeDeadline deadline(*clock, max_decode_ms);
  DecodeRules decode_rules = decode;
  decode_rules.deadline = &deadline;
  FirstCut cut(steps, rules, key, memory);
  decode_rules.parts = &cut;
  decode_rules.jpeg = &memory.jpeg();
  ASSIGN_OR_RETURN(const Decoded decoded, DecodeImage(encoded, decode_rules, memory.First()));
  Image image = decoded.image;
  if (decoded.orientation != 1) image = Upright(image, decoded.orientation, memory.Next());
  const Size size = {image.height, image.width};
  const Box all = {.height = size.height, .width = size.width};
  cut.Plan(decoded.is_part ? decoded.whole : size, decoded.reduction);

  const StepRunner runner(rules, key, memory);
  size_t end = steps.size();
  while (end > cut.count() && runner.Skips(steps[end - 1])) --end;
  // Only a step that never reads what it has written may write to the target, which others see.
  ByteBuffer outside(target);
  if (cut.count() > 0) {
    const bool is_last = end == cut.count() && !target.empty();
    ASSIGN_OR_RETURN(
        image, cut.Apply(image, decoded.is_part ? decoded.box : all, is_last ? &outside : nullptr));
  }
  for (size_t i = cut.count(); i < end; ++i) {
    const bool is_flip = std::holds_alternative<step::RandomHorizontalFlip>(steps[i].step);
    if (i + 1 == end && is_flip && !target.empty()) return FlipHorizontally(image, outside);
    ASSIGN_OR_RETURN(image, runner.Apply(steps[i], image));
  }
  return image;
}

void Recipe::Impl::Write(const Image& image, const SampleKey& key, uint8_t* out) const {
  if (is_tensor) {
    table.Apply(image, out);
    for (const PlacedErasure& erasure : erasures) {
      erasure.Apply(key, image.channels, image.height, image.width, out);
    }
    return;
  }
  if (image.data == out) return;
  for (int y = 0; y < image.height; ++y, out += image.RowBytes()) {
    std::memcpy(out, image.Row(y), image.RowBytes());
  }
}

Status Recipe::Apply(std::span<const uint8_t> encoded, const SampleKey& key, Scratch& scratch,
                     std::span<uint8_t> out) const {
  ImageMemory& memory = scratch.impl().memory;
  const std::span<uint8_t> target = impl_->is_tensor ? std::span<uint8_t>() : out;
  const StatusOr<Image> image = impl_->Run(encoded, key, memory, target);
  if (!image.ok()) {
    memory.Trim(kKeptBytes);
    return image.status();
  }
  const uint64_t bytes = image->Bytes() * DTypeBytes(dtype());
  if (!impl_->shape || bytes != out.size()) {
    return absl::InternalError(
        absl::StrCat("a sample of ", bytes, " bytes was given room for ", out.size()));
  }
  impl_->Write(*image, key, out.data());
  memory.Trim(kKeptBytes);
  return absl::OkStatus();
}

StatusOr<Recipe::Output> Recipe::ApplyToNew(std::span<const uint8_t> encoded, const SampleKey& key,
                                            Scratch& scratch) const {
  ImageMemory& memory = scratch.impl().memory;
  const StatusOr<Image> image = impl_->Run(encoded, key, memory, {});
  if (!image.ok()) {
    memory.Trim(kKeptBytes);
    return image.status();
  }
  Output output;
  output.shape = impl_->is_tensor
                     ? std::vector<int64_t>{image->channels, image->height, image->width}
                     : std::vector<int64_t>{image->height, image->width, image->channels};
  output.bytes.resize(image->Bytes() * DTypeBytes(dtype()));
  impl_->Write(*image, key, output.bytes.data());
  memory.Trim(kKeptBytes);
  return output;
}

}  // namespace loaderd::transform
