// SPDX-License-Identifier: Apache-2.0
#include "server/transform/resample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "tests/unit/transform/answers.h"
#include "tests/unit/transform/decoding.h"

namespace loaderd::transform {
namespace {

constexpr std::array<std::pair<const char*, Filter>, 6> kFilters = {
    {{"nearest", Filter::kNearest},
     {"box", Filter::kBox},
     {"bilinear", Filter::kBilinear},
     {"hamming", Filter::kHamming},
     {"bicubic", Filter::kBicubic},
     {"lanczos", Filter::kLanczos}}};

class ResampleTest : public ::testing::TestWithParam<Reference> {};

// Seven files, two modes, six filters, twelve sizes; made by Pillow itself
// (tests/support/make_fixtures.py).
TEST_P(ResampleTest, EqualsPillowInAllFiltersUpAndDown) {
  const bool is_old = GetParam() == Reference::kPillow12;
  const Json answers =
      ReadJson(Fixtures() / (is_old ? "answers_pillow12.json" : "answers_pillow13.json"));
  Resampler resampler;
  ByteBuffer pixels, out;
  int compared = 0;
  for (const auto& [file, value] : Object(answers, "resized").fields()) {
    const std::vector<uint8_t> bytes = Fixture(file);
    for (const auto& [mode_name, mode] :
         {std::pair("RGB", ImageMode::kRgb), std::pair("L", ImageMode::kL)}) {
      const StatusOr<Image> source = DecodePixels(bytes, mode, kMaxPixels, pixels);
      ASSERT_TRUE(source.ok()) << source.status();
      for (const auto& [filter_name, filter] : kFilters) {
        Sha256 hash;
        for (const JsonValue& size : List(answers, "sizes")) {
          const auto& sides = size.list_value().values();
          const Size to = {static_cast<int>(sides[0].number_value()),
                           static_cast<int>(sides[1].number_value())};
          const StatusOr<Image> result =
              resampler.Resize(*source, to, filter, GetParam(), kMaxPixels, out);
          ASSERT_TRUE(result.ok()) << result.status();
          hash.Add(*result);
          ++compared;
        }
        EXPECT_EQ(hash.Hex(),
                  Text(value.struct_value(), std::string(mode_name) + " " + filter_name))
            << file << " " << mode_name << " " << filter_name;
      }
    }
  }
  EXPECT_EQ(compared, 7 * 2 * 6 * 12);
}

INSTANTIATE_TEST_SUITE_P(References, ResampleTest,
                         ::testing::Values(Reference::kPillow13, Reference::kPillow12),
                         [](const auto& info) {
                           return info.param == Reference::kPillow13 ? "Pillow13" : "Pillow12";
                         });

TEST(ResamplerTest, GivesTheImageItselfWhenTheSizeIsThere) {
  const std::vector<uint8_t> pixels(12, 7);
  const Image image = Contiguous(pixels.data(), 2, 2, 3);
  ByteBuffer out;
  const StatusOr<Image> result =
      Resampler().Resize(image, {2, 2}, Filter::kLanczos, Reference::kPillow13, kMaxPixels, out);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->data, pixels.data());
}

TEST(ResamplerTest, ReadsACropWithoutTheRestOfItsRows) {
  // A 2 x 2 crop of 10s within 200s: nothing of the surroundings may show.
  std::vector<uint8_t> pixels(6 * 6, 200);
  for (const size_t place : {14, 15, 20, 21}) pixels[place] = 10;
  const Image crop =
      Contiguous(pixels.data(), 6, 6, 1).Crop({.top = 2, .left = 2, .height = 2, .width = 2});
  ByteBuffer out;
  Resampler resampler;
  for (const auto& [name, filter] : kFilters) {
    const StatusOr<Image> result =
        resampler.Resize(crop, {5, 3}, filter, Reference::kPillow13, kMaxPixels, out);
    ASSERT_TRUE(result.ok());
    for (size_t i = 0; i < 15; ++i) EXPECT_EQ(result->data[i], 10) << name;
  }
}

// Pillow 12 filters rows first whatever comes: a tall, narrow image made wide and low is huge
// between the passes.
TEST(ResamplerTest, RefusesAHugeImageBetweenThePasses) {
  const std::vector<uint8_t> pixels(60000, 1);
  const Image tall = Contiguous(pixels.data(), 60000, 1, 1);
  ByteBuffer out;
  Resampler resampler;
  const auto resize = [&](Reference reference) {
    return resampler.Resize(tall, {1, 60000}, Filter::kBilinear, reference, 1 << 20, out);
  };
  EXPECT_EQ(resize(Reference::kPillow12).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(resize(Reference::kPillow12).status().message()),
              ::testing::HasSubstr("60000 x 60000 pixels; the limit is 1048576"));
  EXPECT_TRUE(resize(Reference::kPillow13).ok());
}

}  // namespace
}  // namespace loaderd::transform
