// SPDX-License-Identifier: Apache-2.0
// Hostile bytes through whole recipes: decode, every kind of image step, tensors. What counts is
// that each input ends in a result or in an error, within memory; sanitizers watch. Built once for
// each codec, whose first bytes an input gets where it has none of its own.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "server/transform/recipe.h"

namespace {
using namespace loaderd;
using transform::Recipe;

std::unique_ptr<const Recipe> Compiled(RecipeSpec spec) {
  // Small enough that a claim of a huge image costs the fuzzer no time.
  auto recipe = Recipe::Compile(spec, {.max_pixels = 1 << 18});
  if (!recipe.ok()) std::abort();
  return *std::move(recipe);
}

std::vector<std::unique_ptr<const Recipe>> Recipes() {
  step::Resize shorter_edge;
  shorter_edge.size = 64;
  shorter_edge.filter = Filter::kLanczos;
  step::Resize nearest;
  nearest.size = Size{7, 300};
  nearest.filter = Filter::kNearest;
  const step::RandomResizedCrop crop = {.size = {32, 48}};
  std::vector<std::unique_ptr<const Recipe>> recipes;
  recipes.push_back(Compiled({.steps = {crop, step::RandomHorizontalFlip{}, step::ToTensor{}}}));
  RecipeSpec upright;
  upright.exif_transpose = true;
  upright.wide = WideMode::kClip;
  recipes.push_back(Compiled(upright));
  recipes.push_back(Compiled({.mode = ImageMode::kL,
                              .reference = Reference::kPillow12,
                              .steps = {shorter_edge, step::CenterCrop{{65, 31}}, nearest}}));
  return recipes;
}

std::string_view BeginOf(std::string_view codec) {
  if (codec == "jpeg") return "\xff\xd8\xff";
  if (codec == "png") return "\x89PNG\r\n\x1a\n";
  if (codec == "webp") return {"RIFF\xff\xff\0\0WEBP", 12};
  if (codec == "gif") return "GIF89a";
  if (codec == "bmp") return "BM";
  if (codec == "tiff") return {"II*\0", 4};
  return "P6";
}

// `data` behind the codec's first bytes, or alone where its own first byte is the codec's.
std::vector<uint8_t> WithBegin(const uint8_t* data, size_t size) {
  static const std::string_view kBegin = BeginOf(LOADERD_FUZZ_CODEC);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<uint8_t> out;
  // What varies within a codec (P1 to P6, MM, a RIFF's length) is the input's own.
  if (text.substr(0, 1) != kBegin.substr(0, 1)) out.assign(kBegin.begin(), kBegin.end());
  out.insert(out.end(), data, data + size);
  return out;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& recipes = *new std::vector<std::unique_ptr<const Recipe>>(Recipes());
  static auto& scratch = *new transform::Scratch;
  for (const auto& recipe : recipes) {
    // An exact copy, so that reading one byte too many is seen.
    const std::vector<uint8_t> encoded = WithBegin(data, size);
    const auto output = recipe->ApplyToNew(encoded, {.index = size}, scratch);
    const bool is_explained = !output.status().message().empty();
    if (!output.ok() && (output.status().code() != absl::StatusCode::kDataLoss || !is_explained)) {
      std::abort();
    }
  }
  return 0;
}
