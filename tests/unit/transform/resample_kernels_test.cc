// SPDX-License-Identifier: Apache-2.0
// Whatever vectors the CPU has give what plain numbers give.
#include "server/transform/resample_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <iostream>
#include <random>

#include "server/transform/resample.h"

namespace loaderd::transform {
namespace {
constexpr uint64_t kNoLimit = uint64_t{1} << 40;

// All targets that this CPU has, plain numbers last.
std::vector<int64_t> Targets() {
  std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  std::sort(targets.begin(), targets.end());
  return targets;
}

void Force(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

class ResampleKernelsTest : public ::testing::Test {
 protected:
  ~ResampleKernelsTest() override { Force(0); }

  int Below(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }
  // Small sizes, where the edges are, as often as large ones.
  int Side() { return 1 + (Below(2) == 0 ? Below(20) : Below(400)); }

  std::mt19937 random_{20260706};
};

std::vector<uint8_t> BytesOf(const Image& image) {
  std::vector<uint8_t> bytes;
  for (int y = 0; y < image.height; ++y) {
    bytes.insert(bytes.end(), image.Row(y), image.Row(y) + image.RowBytes());
  }
  return bytes;
}

TEST_F(ResampleKernelsTest, AllTargetsGiveWhatPlainNumbersGive) {
  constexpr Filter kFilters[] = {Filter::kBox, Filter::kBilinear, Filter::kHamming,
                                 Filter::kBicubic, Filter::kLanczos};
  const std::vector<int64_t> targets = Targets();
  ASSERT_GE(targets.size(), 1u);
  int compared = 0;
  for (int round = 0; round < 300; ++round) {
    const Size in = {Side(), Side()};
    const int channels = Below(3) == 0 ? 1 : 3;
    // The image lies in a larger one whose pixels nobody may read: it ends where the memory ends.
    std::vector<uint8_t> pixels(static_cast<size_t>(in.height) * static_cast<size_t>(in.width) *
                                static_cast<size_t>(channels));
    const bool is_harsh = Below(2) == 0;  // extremes, where sums leave 0..255
    for (uint8_t& pixel : pixels) {
      pixel = static_cast<uint8_t>(is_harsh ? Below(2) * 255 : Below(256));
    }
    Resizing resizing = {.in = in,
                         .out = {Side(), Side()},
                         .wanted = {},
                         .filter = kFilters[Below(5)],
                         .reference = Below(2) == 0 ? Reference::kPillow12 : Reference::kPillow13};
    Box& wanted = resizing.wanted;
    wanted.height = 1 + Below(resizing.out.height);
    wanted.width = 1 + Below(resizing.out.width);
    wanted.top = Below(resizing.out.height - wanted.height + 1);
    wanted.left = Below(resizing.out.width - wanted.width + 1);
    const Image image = Contiguous(pixels.data(), in.height, in.width, channels);

    const auto resize = [&](const Box& given) {
      Resampler resampler;
      ByteBuffer out;
      const StatusOr<Image> result =
          resampler.Resize(image.Crop(given), given, resizing, kNoLimit, out);
      EXPECT_TRUE(result.ok()) << result.status();
      return BytesOf(*result);
    };
    const Box all = {.height = in.height, .width = in.width};
    const Box needed = Resampler().Needed(resizing);
    Force(targets.back());
    // The part is what the whole has there, and the whole is cut by Image alone.
    Resizing whole = resizing;
    whole.wanted = {.height = resizing.out.height, .width = resizing.out.width};
    Resampler resampler;
    ByteBuffer out;
    const StatusOr<Image> full = resampler.Resize(image, all, whole, kNoLimit, out);
    ASSERT_TRUE(full.ok()) << full.status();
    const std::vector<uint8_t> right = BytesOf(full->Crop(wanted));
    for (const int64_t target : targets) {
      Force(target);
      for (const Box& given : {all, needed}) {
        ASSERT_EQ(resize(given), right)
            << hwy::TargetName(target) << ", round " << round << ": " << in.width << " x "
            << in.height << " to " << resizing.out.width << " x " << resizing.out.height;
        ++compared;
      }
    }
  }
  std::cout << compared << " comparisons with:";
  for (const int64_t target : targets) std::cout << ' ' << hwy::TargetName(target);
  std::cout << '\n';
}

TEST_F(ResampleKernelsTest, AllTargetsMirrorRows) {
  for (const int channels : {1, 3}) {
    for (int width = 1; width <= 70; ++width) {
      std::vector<uint8_t> pixels(static_cast<size_t>(3 * width * channels));
      for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(Below(256));
      std::vector<uint8_t> right;
      for (int y = 0; y < 3; ++y) {
        for (int x = width - 1; x >= 0; --x) {
          for (int c = 0; c < channels; ++c) {
            right.push_back(pixels[static_cast<size_t>((y * width + x) * channels + c)]);
          }
        }
      }
      for (const int64_t target : Targets()) {
        Force(target);
        std::vector<uint8_t> mirrored(pixels.size());
        MirrorRows(Contiguous(pixels.data(), 3, width, channels), mirrored.data());
        ASSERT_EQ(mirrored, right) << hwy::TargetName(target) << ", " << width << " pixels";
      }
    }
  }
}

}  // namespace
}  // namespace loaderd::transform
