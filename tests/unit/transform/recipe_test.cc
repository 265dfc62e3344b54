// SPDX-License-Identifier: Apache-2.0
#include "server/transform/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "tests/unit/transform/answers.h"

// Counts this program's allocations through operator new, so that a test can say "none". Not
// inlined: GCC would see a free() of what a new gave.
namespace {
std::atomic<size_t> allocations = 0;
}  // namespace
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](size_t size) { return operator new(size); }
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
[[gnu::noinline]] void* operator new[](size_t size, const std::nothrow_t& nothrow) noexcept {
  return operator new(size, nothrow);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace loaderd::transform {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

std::unique_ptr<const Recipe> Compiled(std::vector<Step> steps, ImageMode mode = ImageMode::kRgb) {
  auto recipe = Recipe::Compile({.mode = mode, .steps = std::move(steps)}, {});
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  return *std::move(recipe);
}

std::string RefusalOf(std::vector<Step> steps, ImageMode mode = ImageMode::kRgb) {
  const auto recipe = Recipe::Compile({.mode = mode, .steps = std::move(steps)}, {});
  EXPECT_EQ(recipe.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(recipe.status().message());
}

const step::Normalize kNormalize = {.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}};
const step::RandomResizedCrop kCrop = {.size = {24, 32}};

TEST(RecipeCompileTest, NamesTheStepThatIsOutOfPlace) {
  EXPECT_EQ(RefusalOf({ResizeTo(8), kNormalize}),
            "transform[1].normalize: needs a tensor; put ToTensor before it");
  EXPECT_EQ(
      RefusalOf({step::PilToTensor{}, kNormalize}),
      "transform[1].normalize: needs a float tensor; put ToTensor or ConvertImageDtype before "
      "it");
  EXPECT_EQ(RefusalOf({step::ConvertImageDtype{}}),
            "transform[0].convert_image_dtype: needs a tensor; put PILToTensor or ToTensor before "
            "it");
  EXPECT_THAT(RefusalOf({step::ToTensor{}, step::PilToTensor{}}),
              HasSubstr("transform[1].pil_to_tensor: the image is a tensor already"));
  EXPECT_THAT(RefusalOf({step::ToTensor{}, step::ConvertImageDtype{DType::kUint8}}),
              HasSubstr("transform[1].convert_image_dtype.dtype: uint8 only from uint8"));
}

TEST(RecipeCompileTest, RefusesEveryImageStepAfterTheTensor) {
  for (const auto& [name, step] : {std::pair<std::string, Step>{"resize", ResizeTo(8)},
                                   {"center_crop", step::CenterCrop{{8, 8}}},
                                   {"random_resized_crop", kCrop},
                                   {"random_horizontal_flip", step::RandomHorizontalFlip{}},
                                   {"grayscale", step::Grayscale{}}}) {
    EXPECT_EQ(RefusalOf({step::ToTensor{}, step}),
              "transform[1]." + name +
                  ": works on images, not on tensors; put it before PILToTensor or ToTensor");
  }
}

TEST(RecipeCompileTest, CountsMeansByTheChannelsAtThatPlace) {
  EXPECT_EQ(RefusalOf({step::Grayscale{1}, step::ToTensor{}, kNormalize}),
            "transform[2].normalize.mean: has 3 values for 1 channel; give one for all, or one a "
            "channel");
  EXPECT_THAT(RefusalOf({step::ToTensor{}, step::Normalize{.mean = {0.5}, .std = {1, 1}}}),
              HasSubstr("transform[1].normalize.std: has 2 values for 3 channels"));
  EXPECT_THAT(RefusalOf({step::ToTensor{}, kNormalize}, ImageMode::kL), HasSubstr("for 1 channel"));
  Compiled({step::Grayscale{3}, step::ToTensor{}, kNormalize}, ImageMode::kL);
  Compiled({step::ToTensor{}, step::Normalize{.mean = {0.5}, .std = {0.5}}});
}

TEST(RecipeCompileTest, RefusesAStdThatIsZeroInTheTensorsDType) {
  EXPECT_EQ(RefusalOf({step::PilToTensor{}, step::ConvertImageDtype{DType::kFloat16},
                       step::Normalize{.mean = {0}, .std = {1e-9}}}),
            "transform[2].normalize.std[0]: 1e-09 is 0 as float16");
}

TEST(RecipeCompileTest, RefusesAFixedSizeOverTheLimit) {
  EXPECT_EQ(RefusalOf({step::CenterCrop{{65535, 65535}}}),
            "transform[0].center_crop.size: its result would have 65535 x 65535 pixels; the limit "
            "is 178956970 pixels");
  EXPECT_THAT(RefusalOf({ResizeTo(Size{65535, 65535})}), HasSubstr("resize.size: "));
  EXPECT_THAT(RefusalOf({step::CenterCrop{{1, 10000}}, ResizeTo(9000)}),
              HasSubstr("transform[1].resize.size: its result would have 90000000 x 9000"));
}

TEST(RecipeCompileTest, KnowsShapeAndDTypeWhenAStepFixesTheSize) {
  const auto shape = [](std::vector<Step> steps, ImageMode mode = ImageMode::kRgb) {
    return Compiled(std::move(steps), mode)->shape();
  };
  EXPECT_EQ(shape({}), std::nullopt);
  EXPECT_EQ(shape({ResizeTo(8)}), std::nullopt);
  EXPECT_THAT(shape({ResizeTo(Size{5, 6})}), Optional(ElementsAre(5, 6, 3)));
  EXPECT_THAT(shape({kCrop}), Optional(ElementsAre(24, 32, 3)));
  EXPECT_THAT(shape({kCrop}, ImageMode::kL), Optional(ElementsAre(24, 32, 1)));
  EXPECT_THAT(shape({kCrop, step::Grayscale{1}, step::PilToTensor{}}),
              Optional(ElementsAre(1, 24, 32)));
  EXPECT_THAT(shape({ResizeTo(8), step::CenterCrop{{4, 4}}, step::ToTensor{}}),
              Optional(ElementsAre(3, 4, 4)));
  EXPECT_THAT(shape({kCrop, ResizeTo(12)}), Optional(ElementsAre(12, 16, 3)));
}

TEST(RecipeCompileTest, KnowsTheDType) {
  EXPECT_EQ(Compiled({})->dtype(), DType::kUint8);
  EXPECT_EQ(Compiled({step::PilToTensor{}})->dtype(), DType::kUint8);
  EXPECT_EQ(Compiled({step::PilToTensor{}, step::ConvertImageDtype{DType::kUint8}})->dtype(),
            DType::kUint8);
  EXPECT_EQ(Compiled({step::ToTensor{}})->dtype(), DType::kFloat32);
  EXPECT_EQ(Compiled({step::ToTensor{}, step::ConvertImageDtype{DType::kBfloat16}})->dtype(),
            DType::kBfloat16);
}

class RecipeTest : public ::testing::Test {
 protected:
  std::vector<uint8_t> Apply(const Recipe& recipe, const SampleKey& key,
                             const std::string& fixture = "colour_420.jpg") {
    const StatusOr<Recipe::Output> output = recipe.ApplyToNew(Fixture(fixture), key, scratch_);
    EXPECT_TRUE(output.ok()) << output.status();
    return output->bytes;
  }
  Scratch scratch_;
};

TEST_F(RecipeTest, ApplyAndApplyToNewGiveTheSame) {
  const auto recipe = Compiled({kCrop, step::RandomHorizontalFlip{}, step::ToTensor{}, kNormalize});
  std::vector<uint8_t> out(3 * 24 * 32 * 4);
  for (uint64_t index = 0; index < 20; ++index) {
    const SampleKey key = {.seed = 1, .epoch = 2, .index = index};
    ASSERT_TRUE(recipe->Apply(Fixture("colour_420.jpg"), key, scratch_, out).ok());
    EXPECT_EQ(out, Apply(*recipe, key));
  }
}

TEST_F(RecipeTest, RandomStepsDrawByTheirPlaceInTheWholeRecipe) {
  // The flip at place 1 decides by Draw(key, 1, 0), whatever stands before it.
  const auto plain = Compiled({step::CenterCrop{{16, 16}}});
  const auto flipped = Compiled({step::CenterCrop{{16, 16}}, step::RandomHorizontalFlip{}});
  int flips = 0;
  for (uint64_t index = 0; index < 32; ++index) {
    const SampleKey key = {.seed = 3, .index = index};
    const bool differs = Apply(*plain, key) != Apply(*flipped, key);
    EXPECT_EQ(differs, RandomFlip(key, 1, 0.5));
    flips += differs ? 1 : 0;
  }
  EXPECT_GT(flips, 0);
  EXPECT_LT(flips, 32);
}

TEST_F(RecipeTest, FlippingTwiceGivesTheImageBack) {
  EXPECT_EQ(Apply(*Compiled({step::RandomHorizontalFlip{1}, step::RandomHorizontalFlip{1}}), {}),
            Apply(*Compiled({}), {}));
}

TEST_F(RecipeTest, UndamagedAfterABadSample) {
  const auto recipe = Compiled({kCrop});
  const std::vector<uint8_t> right = Apply(*recipe, {});
  for (const char* bad : {"truncated.jpg", "empty.jpg", "huge_claim.jpg"}) {
    std::vector<uint8_t> out(right.size());
    EXPECT_EQ(recipe->Apply(Fixture(bad), {}, scratch_, out).code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(Apply(*recipe, {}), right);
  }
}

TEST_F(RecipeTest, ADataFaultInAStepNamesTheStep) {
  const auto recipe = Recipe::Compile({.steps = {step::RandomHorizontalFlip{}, ResizeTo(256)}},
                                      {.max_pixels = 100000});
  const Status status = (*recipe)->ApplyToNew(Fixture("tall.jpg"), {}, scratch_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            "transform[1].resize: the resized image would have 256 x 17066 pixels; the limit is "
            "100000 pixels");
}

TEST_F(RecipeTest, RefusesRoomOfAnotherSize) {
  std::vector<uint8_t> out(10);
  EXPECT_EQ(Compiled({kCrop})->Apply(Fixture("odd.jpg"), {}, scratch_, out).code(),
            absl::StatusCode::kInternal);
}

TEST_F(RecipeTest, AllocatesNothingOnceTheScratchHasGrown) {
  const auto recipe =
      Compiled({ResizeTo(40), kCrop, step::RandomHorizontalFlip{}, step::Grayscale{3},
                step::CenterCrop{{40, 40}}, step::ToTensor{}, kNormalize});
  const std::vector<uint8_t> encoded = Fixture("colour_420.jpg");
  std::vector<uint8_t> out(3 * 40 * 40 * 4);
  const auto epoch = [&] {
    bool all_ok = true;
    for (uint64_t index = 0; index < 50; ++index) {
      all_ok = recipe->Apply(encoded, {.index = index}, scratch_, out).ok() && all_ok;
    }
    return all_ok;
  };
  ASSERT_TRUE(epoch());
  const size_t before = allocations;
  ASSERT_TRUE(epoch());
  EXPECT_EQ(allocations, before);
}

TEST_F(RecipeTest, ManyThreadsApplyOneRecipe) {
  const auto recipe = Compiled({kCrop, step::RandomHorizontalFlip{}, step::ToTensor{}});
  const std::vector<uint8_t> encoded = Fixture("colour_420.jpg");
  std::vector<std::vector<uint8_t>> right;
  for (uint64_t index = 0; index < 20; ++index) right.push_back(Apply(*recipe, {.index = index}));
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        Scratch scratch;
        std::vector<uint8_t> out(right[0].size());
        for (uint64_t index = 0; index < right.size(); ++index) {
          const Status status = recipe->Apply(encoded, {.index = index}, scratch, out);
          if (!status.ok() || out != right[index]) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace loaderd::transform
