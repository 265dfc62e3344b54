// SPDX-License-Identifier: Apache-2.0
#include "server/transform/jpeg_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/transform/answers.h"
#include "tests/unit/transform/decoding.h"

namespace loaderd::transform {
namespace {
using ::testing::HasSubstr;

std::string Refusal(std::span<const uint8_t> bytes, uint64_t max_pixels = kMaxPixels) {
  ByteBuffer pixels;
  const StatusOr<Image> image = DecodePixels(bytes, ImageMode::kRgb, max_pixels, pixels);
  EXPECT_EQ(image.status().code(), absl::StatusCode::kDataLoss);
  return std::string(image.status().message());
}

std::string RefusalOf(const std::string& fixture) { return Refusal(Fixture(fixture)); }

// Every fixture: equal to Pillow where Pillow decodes it, refused where Pillow refuses it. The
// exceptions are ours.
TEST(JpegDecoderTest, EqualsPillowOnEveryFixture) {
  const Json answers = Object(ReadJson(Fixtures() / "answers_pillow13.json"), "decoded");
  int equal = 0, refused = 0;
  for (const auto& [name, value] : answers.fields()) {
    SCOPED_TRACE(name);
    if (!name.ends_with(".jpg") || name == "many_scans.jpg") continue;
    const std::vector<uint8_t> bytes = Fixture(name);
    ByteBuffer pixels;
    if (!value.has_struct_value()) {
      EXPECT_EQ(DecodePixels(bytes, ImageMode::kRgb, kMaxPixels, pixels).status().code(),
                absl::StatusCode::kDataLoss);
      ++refused;
      continue;
    }
    const Json& right = value.struct_value();
    const StatusOr<Image> rgb = DecodePixels(bytes, ImageMode::kRgb, kMaxPixels, pixels);
    ASSERT_TRUE(rgb.ok()) << rgb.status();
    EXPECT_EQ(rgb->height, Number(right, "height"));
    EXPECT_EQ(rgb->width, Number(right, "width"));
    EXPECT_EQ(rgb->channels, 3);
    EXPECT_EQ(HashOf(*rgb), Text(right, "rgb"));
    const StatusOr<Image> grey = DecodePixels(bytes, ImageMode::kL, kMaxPixels, pixels);
    ASSERT_TRUE(grey.ok()) << grey.status();
    EXPECT_EQ(grey->channels, 1);
    EXPECT_EQ(HashOf(*grey), Text(right, "grey"));
    ++equal;
  }
  EXPECT_EQ(equal, 17);
  EXPECT_EQ(refused, 7);
}

TEST(JpegDecoderTest, SaysWhereATruncatedFileEnds) {
  EXPECT_THAT(RefusalOf("truncated.jpg"),
              HasSubstr("JPEG is truncated: its 1907 bytes end in row"));
  EXPECT_THAT(RefusalOf("truncated_header.jpg"), HasSubstr("100 bytes end before the image data"));
  EXPECT_THAT(RefusalOf("truncated_progressive.jpg"), HasSubstr("before the last scan"));
}

TEST(JpegDecoderTest, EveryPrefixOfAFileIsRefused) {
  const std::vector<uint8_t> whole = Fixture("odd.jpg");
  for (size_t size = 0; size < whole.size(); ++size) {
    // A copy of its own, so that a sanitizer sees a read past the end.
    const std::vector<uint8_t> prefix(whole.begin(), whole.begin() + static_cast<long>(size));
    ByteBuffer pixels;
    const StatusOr<Image> image = DecodePixels(prefix, ImageMode::kRgb, kMaxPixels, pixels);
    ASSERT_EQ(image.status().code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST(JpegDecoderTest, RefusesAHugeClaimBeforeItTakesMemory) {
  const std::vector<uint8_t> bytes = Fixture("huge_claim.jpg");
  ByteBuffer pixels;
  const StatusOr<Image> image = DecodePixels(bytes, ImageMode::kRgb, kMaxPixels, pixels);
  EXPECT_EQ(image.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(image.status().message(),
            "JPEG claims 65500 x 65500 pixels; the limit is 178956970 pixels, limits.max_pixels");
  EXPECT_EQ(pixels.capacity(), 0u);
}

TEST(JpegDecoderTest, TakesAnImageOfExactlyTheLimit) {
  const std::vector<uint8_t> bytes = Fixture("colour_420.jpg");
  ByteBuffer pixels;
  EXPECT_TRUE(DecodePixels(bytes, ImageMode::kRgb, 61 * 83, pixels).ok());
  EXPECT_THAT(Refusal(bytes, 61 * 83 - 1), HasSubstr("83 x 61"));
}

TEST(JpegDecoderTest, RefusesAScanBomb) {
  EXPECT_THAT(RefusalOf("many_scans.jpg"), HasSubstr("more than 500 scans"));
}

TEST(JpegDecoderTest, PassesOnWhatLibjpegSaysOfAnImpossibleFile) {
  std::vector<uint8_t> bytes = Fixture("colour_420.jpg");
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    if (bytes[i] == 0xFF && bytes[i + 1] == 0xC0) bytes[i + 4] = 12;  // bits a sample
  }
  EXPECT_THAT(Refusal(bytes), HasSubstr("JPEG cannot be decoded: Unsupported JPEG data precision"));
}

TEST(JpegDecoderTest, DamageDoesNotReachTheNextFile) {
  const std::vector<uint8_t> good = Fixture("colour_420.jpg");
  ByteBuffer pixels;
  const std::string right = HashOf(*DecodePixels(good, ImageMode::kRgb, kMaxPixels, pixels));
  for (size_t place = 2; place < good.size(); place += 7) {
    std::vector<uint8_t> bad = good;
    bad[place] ^= 0xA5;
    // Whatever comes of it, it ends, and within the limit.
    (void)DecodePixels(bad, ImageMode::kRgb, 1 << 20, pixels);
    ASSERT_EQ(HashOf(*DecodePixels(good, ImageMode::kRgb, kMaxPixels, pixels)), right) << place;
  }
}

}  // namespace
}  // namespace loaderd::transform
