// SPDX-License-Identifier: Apache-2.0
// What follows the first crop sees that crop's pixels and nothing else: a step gives the same
// behind it as on a file that holds just the crop.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/transform/recipe.h"
#include "tests/unit/transform/answers.h"

namespace loaderd::transform {
namespace {

constexpr uint64_t kKeys = 12;

std::vector<uint8_t> Apply(const RecipeSpec& spec, std::span<const uint8_t> encoded, uint64_t key,
                           Size* size = nullptr) {
  const auto recipe = Recipe::Compile(spec, {});
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  Scratch scratch;
  const auto output = (*recipe)->ApplyToNew(encoded, {.index = key}, scratch);
  EXPECT_TRUE(output.ok()) << output.status();
  if (!output.ok()) return {};
  if (size != nullptr) {
    *size = {static_cast<int>(output->shape[0]), static_cast<int>(output->shape[1])};
  }
  return output->bytes;
}

std::vector<uint8_t> Portable(Size size, const std::vector<uint8_t>& pixels) {
  const std::string header =
      "P6 " + std::to_string(size.width) + " " + std::to_string(size.height) + " 255\n";
  std::vector<uint8_t> file(header.begin(), header.end());
  file.insert(file.end(), pixels.begin(), pixels.end());
  return file;
}

const std::vector<Step>& Following() {
  static const std::vector<Step> steps = {
      step::Pad{.padding = {1, 2, 3, 4}},
      step::Pad{.padding = {9, 2, 3, 4}, .mode = PadMode::kReflect},
      step::Pad{.padding = {1, 7, 3, 4}, .mode = PadMode::kEdge},
      step::CenterCrop{{60, 30}},
      step::CenterCrop{{20, 20}},
      step::RandomCrop{.size = {40, 40}, .padding = {9, 9, 9, 9}},
      ResizeTo(Size{33, 61}),
      ResizeTo(Size{50, 40}, Filter::kNearest),
      step::RandomResizedCrop{{24, 31}},
      step::RandomHorizontalFlip{.p = 1},
      step::RandomVerticalFlip{.p = 1},
      step::RandomRotation{.degrees = {-90, 90}},
      step::RandomRotation{.degrees = {90, 90}, .expand = true},
      step::RandomAffine{.degrees = {-9, 9}, .fill = {1, 2, 3}},
      step::RandomPerspective{.p = 1},
      step::ColorJitter{.brightness = step::Interval{0.5, 1.5}, .hue = step::Interval{-0.2, 0.2}},
      step::RandomGrayscale{.p = 1},
      step::GaussianBlur{.kernel = {5, 3}},
      step::RandAugment{},
      step::TrivialAugmentWide{},
      step::AutoAugment{},
      step::RandomInvert{.p = 1},
      step::RandomAdjustSharpness{.factor = 2, .p = 1},
      step::RandomEqualize{.p = 1}};
  return steps;
}

void ExpectEqualBehind(const Step& first, const std::string& file, bool upright) {
  const step::RandomInvert nothing = {.p = 0};  // keeps the places of the others
  const auto encoded = Fixture(file);
  for (size_t i = 0; i < Following().size(); ++i) {
    const Step& then = Following()[i];
    for (uint64_t key = 0; key < kKeys; ++key) {
      Size size;
      const auto crop = Apply({.steps = {first}, .exif_transpose = upright}, encoded, key, &size);
      const auto wanted = Apply({.steps = {nothing, then}}, Portable(size, crop), key);
      EXPECT_EQ(Apply({.steps = {first, then}, .exif_transpose = upright}, encoded, key), wanted)
          << file << ", step " << i << ", key " << key;
      // And with one more that writes.
      const step::RandomVerticalFlip flip = {.p = 1};
      EXPECT_EQ(Apply({.steps = {first, then, flip}, .exif_transpose = upright}, encoded, key),
                Apply({.steps = {nothing, then, flip}}, Portable(size, crop), key))
          << file << ", step " << i << ", key " << key;
    }
  }
}

class StepsAfterCropTest : public ::testing::TestWithParam<std::string> {};

TEST_P(StepsAfterCropTest, SeeTheMiddle) {
  ExpectEqualBehind(step::CenterCrop{{40, 50}}, GetParam(), false);
  ExpectEqualBehind(step::CenterCrop{{40, 50}}, GetParam(), true);
}
TEST_P(StepsAfterCropTest, SeeARandomPart) {
  ExpectEqualBehind(step::RandomCrop{.size = {40, 50}, .padding = {}}, GetParam(), false);
}
TEST_P(StepsAfterCropTest, SeeAResizedPart) {
  ExpectEqualBehind(step::RandomResizedCrop{{40, 50}}, GetParam(), true);
}
TEST_P(StepsAfterCropTest, SeeTheWholeResized) {
  ExpectEqualBehind(ResizeTo(Size{40, 50}), GetParam(), false);
}

INSTANTIATE_TEST_SUITE_P(Files, StepsAfterCropTest,
                         ::testing::Values("colour_444.jpg", "colour_420.jpg"),
                         [](const auto& info) {
                           return info.param.substr(0, info.param.find('.'));
                         });

}  // namespace
}  // namespace loaderd::transform
