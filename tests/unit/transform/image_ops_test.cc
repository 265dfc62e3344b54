// SPDX-License-Identifier: Apache-2.0
#include "server/transform/image_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/transform/answers.h"

namespace loaderd::transform {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ImageRules kRules = {.reference = Reference::kPillow13, .max_pixels = kMaxPixels};

// 1, 2, 3, ... in rows.
struct Ramp {
  Ramp(int height, int width) : pixels(static_cast<size_t>(height * width)) {
    std::iota(pixels.begin(), pixels.end(), uint8_t{1});
    image = Contiguous(pixels.data(), height, width, 1);
  }
  std::vector<uint8_t> pixels;
  Image image;
};

std::vector<int> Pixels(const Image& image) {
  std::vector<int> pixels;
  for (int y = 0; y < image.height; ++y) {
    pixels.insert(pixels.end(), image.Row(y), image.Row(y) + image.RowBytes());
  }
  return pixels;
}

std::array<int64_t, 2> ResizedTo(const step::Resize& resize, int height, int width) {
  const WideSize size = ResizedSize(resize, height, width);
  return {size.height, size.width};
}

// Answers of torchvision's _compute_resized_output_size.
TEST(ResizedSizeTest, ScalesTheLongerEdgeAndCutsItsFraction) {
  EXPECT_THAT(ResizedTo(ResizeTo(256), 375, 500), ElementsAre(256, 341));
  EXPECT_THAT(ResizedTo(ResizeTo(256), 500, 375), ElementsAre(341, 256));
  EXPECT_THAT(ResizedTo(ResizeTo(256), 33, 33), ElementsAre(256, 256));
  EXPECT_THAT(ResizedTo(ResizeTo(7), 3, 10), ElementsAre(7, 23));
  EXPECT_THAT(ResizedTo(ResizeTo(65535), 1, 65500), ElementsAre(65535, int64_t{65535} * 65500));
}

TEST(ResizedSizeTest, KeepsTheLongerEdgeWithinMaxSize) {
  EXPECT_THAT(ResizedTo(ResizeTo(256, Filter::kBilinear, 300), 375, 500), ElementsAre(225, 300));
  EXPECT_THAT(ResizedTo(ResizeTo(256, Filter::kBilinear, 341), 375, 500), ElementsAre(256, 341));
  EXPECT_THAT(ResizedTo(ResizeTo(2, Filter::kBilinear, 3), 65500, 1), ElementsAre(3, 0));
}

TEST(ResizedSizeTest, TakesAPairAsItIs) {
  EXPECT_THAT(ResizedTo(ResizeTo(Size{12, 34}), 375, 500), ElementsAre(12, 34));
}

TEST(ResizeTest, AResultOverTheLimitIsADataFault) {
  const std::vector<uint8_t> pixels(60000, 1);
  const Image wide = Contiguous(pixels.data(), 1, 60000, 1);
  ImageMemory memory;
  const Status huge = Resize(wide, ResizeTo(256), kRules, memory).status();
  EXPECT_EQ(huge.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(huge.message()), HasSubstr("15360000 x 256 pixels; the limit is"));
  const Status empty = Resize(wide, ResizeTo(2, Filter::kBilinear, 3), kRules, memory).status();
  EXPECT_EQ(empty.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(empty.message()), HasSubstr("would be empty: 3 x 0"));
}

TEST(CenterCropTest, RoundsAHalfPixelToEven) {
  // (5 - 2) / 2 = 1.5 becomes 2; (3 - 2) / 2 = 0.5 becomes 0.
  const Ramp ramp(3, 5);
  ImageMemory memory;
  EXPECT_THAT(Pixels(*CenterCrop(ramp.image, {2, 2}, kRules, memory)), ElementsAre(3, 4, 8, 9));
}

TEST(CenterCropTest, PadsWithZerosMoreOfThemAfter) {
  const Ramp ramp(1, 2);
  ImageMemory memory;
  EXPECT_THAT(Pixels(*CenterCrop(ramp.image, {2, 5}, kRules, memory)),
              ElementsAre(0, 1, 2, 0, 0, 0, 0, 0, 0, 0));
}

TEST(CenterCropTest, PadsOneAxisAndCropsTheOther) {
  const Ramp ramp(1, 5);
  ImageMemory memory;
  EXPECT_THAT(Pixels(*CenterCrop(ramp.image, {3, 2}, kRules, memory)),
              ElementsAre(0, 0, 3, 4, 0, 0));
}

TEST(CropAndResizeTest, AnEmptyBoxIsADataFault) {
  const Ramp ramp(3, 3);
  ImageMemory memory;
  EXPECT_EQ(CropAndResize(ramp.image, {.height = 0, .width = 3}, {2, 2}, Filter::kBilinear, kRules,
                          memory)
                .status()
                .code(),
            absl::StatusCode::kDataLoss);
}

TEST(FlipTest, MirrorsEachRowOfACropAndKeepsChannelsTogether) {
  const Ramp ramp(2, 3);
  ImageMemory memory;
  EXPECT_THAT(Pixels(FlipHorizontally(ramp.image, memory.Next())), ElementsAre(3, 2, 1, 6, 5, 4));
  const Image rgb = Contiguous(ramp.pixels.data(), 1, 2, 3);
  EXPECT_THAT(Pixels(FlipHorizontally(rgb, memory.Next())), ElementsAre(4, 5, 6, 1, 2, 3));
  const Image crop = ramp.image.Crop({.top = 0, .left = 1, .height = 2, .width = 2});
  EXPECT_THAT(Pixels(FlipHorizontally(crop, memory.Next())), ElementsAre(3, 2, 6, 5));
}

TEST(ToGreyTest, WeighsAsPillowAndRepeats) {
  const uint8_t rgb[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255};
  const Image image = Contiguous(rgb, 1, 4, 3);
  ImageMemory memory;
  EXPECT_THAT(Pixels(ToGrey(image, 1, memory)), ElementsAre(76, 150, 29, 255));
  const Image one = image.Crop({.height = 1, .width = 1});
  EXPECT_THAT(Pixels(ToGrey(one, 3, memory)), ElementsAre(76, 76, 76));
  const Ramp grey(1, 2);
  EXPECT_THAT(Pixels(ToGrey(grey.image, 3, memory)), ElementsAre(1, 1, 1, 2, 2, 2));
}

TEST(ImageMemoryTest, TrimGivesBackOnlyWhatIsLarger) {
  ImageMemory memory;
  ByteBuffer& small = memory.Next();
  ByteBuffer& large = memory.Next();
  small.Resize(10);
  large.Resize(1000);
  memory.Trim(100);
  EXPECT_EQ(small.capacity(), 10u);
  EXPECT_EQ(large.capacity(), 0u);
}

}  // namespace
}  // namespace loaderd::transform
