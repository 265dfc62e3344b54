// SPDX-License-Identifier: Apache-2.0
#include "server/transform/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace loaderd::transform {
namespace {
using Block = std::array<uint32_t, 4>;

// Known answers of the authors' own implementation, Random123.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(DrawTest, PutsEachPartOfTheKeyInItsPlace) {
  const SampleKey key = {.seed = 0x1122334455667788, .epoch = 0x99, .index = 0xAABBCCDDEEFF0011};
  EXPECT_EQ(Draw(key, 3, 5),
            Philox4x32({0xEEFF0011, 0xAABBCCDD, 0x99, 0x00030005}, {0x55667788, 0x11223344}));
}

TEST(DrawTest, UnitAndBelowStayInTheirRanges) {
  EXPECT_EQ(Unit(0), 0.0);
  EXPECT_LT(Unit(~0u), 1.0);
  EXPECT_EQ(Unit(0x80000000), 0.5);
  EXPECT_EQ(Below(~0u, 7), 6u);
  EXPECT_EQ(Below(0, 7), 0u);
  EXPECT_EQ(Below(~0u, 1), 0u);
}

TEST(RandomResizedCropBoxTest, IsInsideTheImageAndWithinScaleAndRatio) {
  for (uint64_t index = 0; index < 2000; ++index) {
    const Box box = RandomResizedCropBox({.seed = 1, .epoch = 2, .index = index}, 0, 375, 500,
                                         {0.08, 1.0}, {3.0 / 4.0, 4.0 / 3.0});
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_GT(box.height, 0);
    ASSERT_GT(box.width, 0);
    ASSERT_LE(box.top + box.height, 375);
    ASSERT_LE(box.left + box.width, 500);
    ASSERT_GE(box.height * box.width, 0.079 * 375 * 500);
    ASSERT_NEAR(std::log(static_cast<double>(box.width) / box.height), 0, std::log(4.0 / 3) + 0.02);
  }
}

TEST(RandomResizedCropBoxTest, IsAFunctionOfSeedEpochIndexAndPlace) {
  const auto box = [](const SampleKey& key, uint32_t place) {
    const Box b = RandomResizedCropBox(key, place, 3750, 5000, {0.08, 1.0}, {0.75, 4.0 / 3.0});
    return std::array{b.top, b.left, b.height, b.width};
  };
  const SampleKey key = {.seed = 1, .epoch = 2, .index = 3};
  EXPECT_EQ(box(key, 0), box(key, 0));
  const std::set<std::array<int, 4>> boxes = {
      box(key, 0), box({.seed = 9, .epoch = 2, .index = 3}, 0),
      box({.seed = 1, .epoch = 9, .index = 3}, 0), box({.seed = 1, .epoch = 2, .index = 9}, 0),
      box(key, 1)};
  EXPECT_EQ(boxes.size(), 5u);
}

TEST(RandomResizedCropBoxTest, TakesTheWholeImageWhenThatIsAllThatIsAllowed) {
  EXPECT_EQ(RandomResizedCropBox({}, 0, 100, 100, {1, 1}, {1, 1}),
            (Box{.top = 0, .left = 0, .height = 100, .width = 100}));
}

// No attempt can succeed on these, so the box is torchvision's central one.
TEST(RandomResizedCropBoxTest, FallsBackToTheCentralCropOfTheNearestRatio) {
  const std::array<double, 2> scale = {1, 1}, ratio = {3.0 / 4.0, 4.0 / 3.0};
  EXPECT_EQ(RandomResizedCropBox({}, 0, 1000, 10, scale, ratio),
            (Box{.top = 493, .left = 0, .height = 13, .width = 10}));
  EXPECT_EQ(RandomResizedCropBox({}, 0, 10, 1001, scale, ratio),
            (Box{.top = 0, .left = 494, .height = 10, .width = 13}));
  EXPECT_EQ(RandomResizedCropBox({}, 0, 10, 11, {5, 5}, ratio),
            (Box{.top = 0, .left = 0, .height = 10, .width = 11}));
}

TEST(RandomResizedCropBoxTest, RoundsHalvesToEven) {
  // 5 / 2 is 2.5, and 7 / 2 is 3.5.
  EXPECT_EQ(RandomResizedCropBox({}, 0, 1000, 5, {1, 1}, {2, 2}).height, 2);
  EXPECT_EQ(RandomResizedCropBox({}, 0, 1000, 7, {1, 1}, {2, 2}).height, 4);
}

TEST(RandomFlipTest, IsNeverAtZeroAlwaysAtOneAndHalfTheTimeAtAHalf) {
  int flips = 0;
  for (uint64_t index = 0; index < 4000; ++index) {
    const SampleKey key = {.seed = 7, .index = index};
    ASSERT_FALSE(RandomFlip(key, 1, 0.0));
    ASSERT_TRUE(RandomFlip(key, 1, 1.0));
    flips += RandomFlip(key, 1, 0.5) ? 1 : 0;
  }
  EXPECT_NEAR(flips, 2000, 200);
}

}  // namespace
}  // namespace loaderd::transform
