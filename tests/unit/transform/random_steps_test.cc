// SPDX-License-Identifier: Apache-2.0
// The random steps in whole recipes: which place draws, what shape comes out, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "server/transform/random_params.h"
#include "server/transform/recipe.h"
#include "tests/unit/transform/answers.h"

namespace loaderd::transform {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

std::unique_ptr<const Recipe> Compiled(std::vector<Step> steps) {
  auto recipe = Recipe::Compile({.steps = std::move(steps)}, {});
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  return *std::move(recipe);
}

std::string RefusalOf(std::vector<Step> steps) {
  const auto recipe = Recipe::Compile({.steps = std::move(steps)}, {});
  EXPECT_EQ(recipe.status().code(), absl::StatusCode::kInvalidArgument);
  return MessageOf(recipe.status());
}

std::vector<uint8_t> Apply(const Recipe& recipe, uint64_t index) {
  Scratch scratch;
  const auto output = recipe.ApplyToNew(Fixture("colour_444.jpg"), {.index = index}, scratch);
  EXPECT_TRUE(output.ok()) << output.status();
  return output.ok() ? output->bytes : std::vector<uint8_t>();
}

const step::CenterCrop kCrop = {{40, 50}};

TEST(RandomStepsTest, EveryStepKeepsTheShapeItPromises) {
  const std::vector<Step> steps = {
      kCrop,
      step::Pad{.padding = {1, 2, 3, 4}, .mode = PadMode::kReflect},
      step::RandomCrop{.size = {40, 40}, .padding = {3, 3, 3, 3}},
      step::RandomVerticalFlip{},
      step::RandomRotation{.degrees = {-90, 90}},
      step::RandomAffine{.degrees = {-9, 9}, .fill = {1, 2, 3}},
      step::RandomPerspective{},
      step::ColorJitter{.brightness = step::Interval{0.5, 1.5}, .hue = step::Interval{-0.2, 0.2}},
      step::RandomGrayscale{.p = 0.5},
      step::GaussianBlur{.kernel = {5, 3}},
      step::RandAugment{},
      step::TrivialAugmentWide{},
      step::AutoAugment{},
      step::RandomInvert{},
      step::RandomPosterize{.bits = 3},
      step::RandomSolarize{.threshold = 100},
      step::RandomAdjustSharpness{.factor = 2},
      step::RandomAutocontrast{},
      step::RandomEqualize{},
      step::RandomApply{.transforms = {{step::RandomInvert{}}}},
      step::RandomChoice{.transforms = {{step::RandomInvert{}}, {step::RandomEqualize{}}}},
      step::RandomOrder{.transforms = {{step::RandomInvert{}}, {step::RandomEqualize{}}}},
      step::ToTensor{},
      step::RandomErasing{.value = {}},
      step::Normalize{.mean = {0.5}, .std = {0.5}}};
  const auto recipe = Compiled(steps);
  EXPECT_THAT(recipe->shape(), Optional(ElementsAre(3, 40, 40)));
  for (uint64_t index = 0; index < 50; ++index) {
    EXPECT_EQ(Apply(*recipe, index).size(), 3u * 40 * 40 * 4);
    EXPECT_EQ(Apply(*recipe, index), Apply(*recipe, index));
  }
}

TEST(RandomStepsTest, PlacesCountTheStepsThatOthersHold) {
  const auto plain = Compiled({kCrop});
  const auto inverted = Compiled({kCrop, step::RandomInvert{.p = 1}});
  // The places: crop 0, order 1, apply 2, jitter 3, invert 4.
  const auto nested = Compiled(
      {kCrop,
       step::RandomOrder{
           .transforms = {{step::RandomApply{.transforms = {{step::ColorJitter{}}}, .p = 0}}}},
       step::RandomInvert{}});
  int inversions = 0;
  for (uint64_t index = 0; index < 40; ++index) {
    const bool is_inverted = RandomFlip({.index = index}, 4, 0.5);
    EXPECT_EQ(Apply(*nested, index), Apply(is_inverted ? *inverted : *plain, index));
    inversions += is_inverted ? 1 : 0;
  }
  EXPECT_GT(inversions, 0);
  EXPECT_LT(inversions, 40);
}

TEST(RandomStepsTest, ChoicesOfOneSizeHaveAFixedShape) {
  const step::RandomChoice same = {.transforms = {{kCrop}, {ResizeTo(Size{40, 50})}}};
  EXPECT_THAT(Compiled({same})->shape(), Optional(ElementsAre(40, 50, 3)));
  const step::RandomChoice other = {.transforms = {{kCrop}, {ResizeTo(Size{40, 51})}}};
  EXPECT_EQ(Compiled({other})->shape(), std::nullopt);
  EXPECT_EQ(Compiled({step::RandomApply{.transforms = {{kCrop}}}})->shape(), std::nullopt);
  EXPECT_THAT(Compiled({step::RandomApply{.transforms = {{kCrop}}, .p = 1}})->shape(),
              Optional(ElementsAre(40, 50, 3)));
}

TEST(RandomStepsTest, RefusesWhatCannotBe) {
  EXPECT_EQ(RefusalOf({step::RandomApply{.transforms = {{step::ToTensor{}}}}}),
            "transform[0].random_apply.transforms[0].to_tensor: only steps on images may stand "
            "here; put it behind");
  EXPECT_THAT(RefusalOf({step::RandomApply{.transforms = {{step::Grayscale{1}}}}}),
              HasSubstr("transforms[0].grayscale: makes 1 channels of 3"));
  EXPECT_EQ(RefusalOf({step::RandomErasing{}}),
            "transform[0].random_erasing: needs a tensor; put PILToTensor or ToTensor before it");
  EXPECT_THAT(RefusalOf({step::PilToTensor{}, step::RandomErasing{.value = {256}}}),
              HasSubstr("random_erasing.value: must be 0 to 255"));
  EXPECT_THAT(RefusalOf({step::Grayscale{1}, step::Pad{.padding = {}, .fill = {1, 2, 3}}}),
              HasSubstr("transform[1].pad.fill: has 3 values for 1 channel"));
  EXPECT_THAT(RefusalOf({step::CenterCrop{{4, 4}}, step::GaussianBlur{.kernel = {9, 9}}}),
              HasSubstr("gaussian_blur.kernel_size: must be less than twice"));
  Step deep = step::RandomInvert{};
  for (int i = 0; i < 9; ++i) deep = step::RandomOrder{.transforms = {{deep}}};
  EXPECT_THAT(RefusalOf({deep}), HasSubstr("8 deep"));
}

TEST(RandomStepsTest, AnImageSmallerThanTheCropIsABadSample) {
  Scratch scratch;
  const auto recipe = Compiled({step::RandomCrop{.size = {100, 20}, .padding = {}}});
  const Status status = recipe->ApplyToNew(Fixture("colour_444.jpg"), {}, scratch).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(status), HasSubstr("transform[0].random_crop: the image of 61 x 83"));
  const auto padded =
      Compiled({step::RandomCrop{.size = {100, 20}, .padding = {}, .pad_if_needed = true}});
  EXPECT_EQ(Apply(*padded, 0).size(), 100u * 20 * 3);
}

TEST(RandomStepsTest, LaterTensorStepsChangeWhatWasErased) {
  const auto before =
      Compiled({kCrop, step::ToTensor{}, step::RandomErasing{.p = 1, .value = {0.75}},
                step::Normalize{.mean = {0.5}, .std = {0.5}}});
  const auto after =
      Compiled({kCrop, step::ToTensor{}, step::Normalize{.mean = {0.5}, .std = {0.5}},
                step::RandomErasing{.p = 1, .value = {0.5}}});
  const auto none =
      Compiled({kCrop, step::ToTensor{}, step::Normalize{.mean = {0.5}, .std = {0.5}}});
  // The erasing step has another place in the two, so other boxes: compare each with its own.
  for (const auto& [recipe, place] : {std::pair(before.get(), 2u), std::pair(after.get(), 3u)}) {
    const std::vector<uint8_t> bytes = Apply(*recipe, 5);
    const std::vector<uint8_t> whole = Apply(*none, 5);
    const auto box = ErasedBox({.key = {.index = 5}, .number = place}, {.p = 1}, 40, 50);
    ASSERT_TRUE(box);
    for (int y = 0; y < 40; ++y) {
      for (int x = 0; x < 50; ++x) {
        float value = 0;
        float right = 0;
        std::memcpy(&value, &bytes[static_cast<size_t>(y * 50 + x) * 4], 4);
        std::memcpy(&right, &whole[static_cast<size_t>(y * 50 + x) * 4], 4);
        const bool is_erased = y >= box->top && y < box->top + box->height && x >= box->left &&
                               x < box->left + box->width;
        EXPECT_EQ(value, is_erased ? 0.5F : right);
      }
    }
  }
}

}  // namespace
}  // namespace loaderd::transform
