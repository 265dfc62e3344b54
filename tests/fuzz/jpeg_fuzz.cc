// SPDX-License-Identifier: Apache-2.0
// Hostile bytes through whole recipes: decode, every kind of image step, tensors. What counts is
// that each input ends in a result or in an error, within memory; sanitizers watch.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
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
  recipes.push_back(Compiled({.mode = ImageMode::kL,
                              .reference = Reference::kPillow12,
                              .steps = {shorter_edge, step::CenterCrop{{65, 31}}, nearest}}));
  return recipes;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& recipes = *new std::vector<std::unique_ptr<const Recipe>>(Recipes());
  static auto& scratch = *new transform::Scratch;
  for (const auto& recipe : recipes) {
    // An exact copy, so that reading one byte too many is seen.
    const std::vector<uint8_t> encoded(data, data + size);
    const auto output = recipe->ApplyToNew(encoded, {.index = size}, scratch);
    const bool is_explained = !output.status().message().empty();
    if (!output.ok() && (output.status().code() != absl::StatusCode::kDataLoss || !is_explained)) {
      std::abort();
    }
  }
  return 0;
}
