// SPDX-License-Identifier: Apache-2.0
// Files as people have them: other codings than the name says, cut, lying, turned, of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <initializer_list>

#include "server/transform/recipe.h"
#include "tests/unit/transform/answers.h"
#include "tests/unit/transform/decoding.h"

namespace loaderd::transform {
namespace {
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<uint8_t> Dirty(const std::string& name) { return Fixture("dirty/" + name); }

StatusOr<Recipe::Output> Read(std::span<const uint8_t> bytes, const RecipeSpec& spec = {},
                              const Limits& limits = {}) {
  Scratch scratch;
  return (*Recipe::Compile(spec, limits))->ApplyToNew(bytes, {}, scratch);
}

std::string RefusalOf(std::span<const uint8_t> bytes) {
  const auto output = Read(bytes);
  EXPECT_EQ(output.status().code(), absl::StatusCode::kDataLoss) << output.status();
  return std::string(output.status().message());
}
std::string RefusalOf(const std::string& name) { return RefusalOf(Dirty(name)); }

std::vector<int> PixelOf(const Recipe::Output& output, int x, int y) {
  const size_t at = 3 * static_cast<size_t>(y * output.shape[1] + x);
  return {output.bytes[at], output.bytes[at + 1], output.bytes[at + 2]};
}

MATCHER_P2(Near, right, most, "") {
  bool is_near = arg.size() == right.size();
  for (size_t i = 0; is_near && i < right.size(); ++i)
    is_near = std::abs(arg[i] - right[i]) <= most;
  return is_near;
}

const std::vector<int> kRed = {220, 40, 30}, kGreen = {40, 200, 60}, kBlue = {30, 60, 220},
                       kYellow = {230, 210, 40};

TEST(DirtyFilesTest, EveryFileIsAsPillowReadsIt) {
  const Json answers = Object(ReadJson(Fixtures() / "dirty/answers.json"), "read");
  RecipeSpec plain, grey, upright;
  plain.wide = grey.wide = upright.wide = WideMode::kClip;
  grey.mode = ImageMode::kL;
  upright.exif_transpose = true;
  int equal = 0, refused = 0;
  for (const auto& [name, value] : answers.fields()) {
    SCOPED_TRACE(name);
    // Pillow does not look at the checksums of the image data.
    if (name == "bad_checksum.png") continue;
    const std::vector<uint8_t> bytes = Dirty(name);
    if (!value.has_struct_value()) {
      EXPECT_EQ(Read(bytes).status().code(), absl::StatusCode::kDataLoss);
      ++refused;
      continue;
    }
    const auto hash = [&](const RecipeSpec& spec) {
      const auto output = Read(bytes, spec);
      return output.ok() ? HashOf(output->bytes) : std::string(output.status().message());
    };
    EXPECT_EQ(hash(plain), Text(value.struct_value(), "rgb"));
    EXPECT_EQ(hash(grey), Text(value.struct_value(), "grey"));
    EXPECT_EQ(hash(upright), Text(value.struct_value(), "upright"));
    ++equal;
  }
  EXPECT_EQ(equal, 48);
  EXPECT_EQ(refused, 12);
}

TEST(DirtyFilesTest, InksBecomeColoursAndNotTheirNegatives) {
  for (const char* name : {"cmyk_quad.jpg", "cmyk_unmarked.jpg", "ycck.jpg"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(PixelOf(*Read(Dirty(name)), 5, 5), Near(kRed, 4));
  }
  EXPECT_THAT(PixelOf(*Read(Dirty("ycck_black.jpg")), 5, 5), Near(std::vector{110, 20, 15}, 4));
}

TEST(DirtyFilesTest, TheContentTellsTheFormatAndNotTheName) {
  for (const char* name : {"png_named.jpg", "bmp_named.jpg", "gif_named.jpg", "webp_named.jpg",
                           "tiff_named.jpg", "animated.gif"}) {
    SCOPED_TRACE(name);
    const auto output = Read(Dirty(name));
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(PixelOf(*output, 5, 5), kRed);
    EXPECT_EQ(PixelOf(*output, 90, 60), kYellow);
  }
  EXPECT_THAT(PixelOf(*Read(Dirty("jpeg_named.png")), 90, 5), Near(kGreen, 2));
}

TEST(DirtyFilesTest, AnUnknownFormatIsNamedWithThoseThatAreRead) {
  const auto refusal = [](std::string_view text) {
    return RefusalOf({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  EXPECT_EQ(refusal("<html>nothing"),
            "no image that can be read: found HTML or XML, begins with \"<html>no\"; this version "
            "reads JPEG, PNG, WebP, GIF, BMP, TIFF and PBM/PGM/PPM");
  EXPECT_THAT(refusal(std::string_view("\0\0\0\x20"
                                       "ftypavif",
                                       12)),
              HasSubstr("found AVIF"));
  EXPECT_THAT(refusal("\xff\xd8"), HasSubstr("JPEG that ends or breaks"));
  EXPECT_THAT(refusal("x"), HasSubstr("found an unknown format, begins with \"x\""));
  EXPECT_EQ(refusal(""), "empty file: it has no bytes");
}

TEST(DirtyFilesTest, ACutFileIsCalledTruncated) {
  for (const char* name : {"half.png", "half.gif", "half.bmp", "half.webp", "half.ppm"}) {
    EXPECT_THAT(RefusalOf(name), HasSubstr(" is truncated: its ")) << name;
  }
  EXPECT_THAT(RefusalOf("half.tif"), StartsWith("TIFF cannot be decoded"));
}

TEST(DirtyFilesTest, DamagedPngDataIsAnErrorEachTime) {
  EXPECT_THAT(RefusalOf("bad_data.png"), StartsWith("PNG cannot be decoded: "));
  EXPECT_EQ(RefusalOf("bad_data.png"), RefusalOf("bad_data.png"));
  EXPECT_EQ(RefusalOf("bad_checksum.png"), "PNG cannot be decoded: IDAT: CRC error");
}

TEST(DirtyFilesTest, EveryPrefixOfEveryFormatEnds) {
  for (const char* name : {"palette_many.png", "gif_named.jpg", "rle8.bmp", "orientation_6.webp",
                           "tiff_named.jpg", "samples.ppm", "orientation_6.jpg"}) {
    const std::vector<uint8_t> whole = Dirty(name);
    RecipeSpec spec;
    spec.exif_transpose = true;
    for (size_t size = 0; size < whole.size(); ++size) {
      const std::vector<uint8_t> prefix(whole.begin(), whole.begin() + static_cast<long>(size));
      const auto output = Read(prefix, spec, {.max_pixels = 1 << 20});
      ASSERT_TRUE(output.ok() || output.status().code() == absl::StatusCode::kDataLoss) << name;
    }
  }
}

TEST(DirtyFilesTest, OrientationTurnsWhereItIsAskedFor) {
  const std::vector<int> right[] = {kRed, kRed,  kGreen,  kYellow, kBlue,
                                    kRed, kBlue, kYellow, kGreen,  kRed};
  RecipeSpec upright;
  upright.exif_transpose = true;
  for (int i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    const std::vector<uint8_t> bytes = Dirty("orientation_" + std::to_string(i) + ".jpg");
    const auto stored = Read(bytes);
    EXPECT_THAT(stored->shape, ::testing::ElementsAre(64, 96, 3));
    EXPECT_THAT(PixelOf(*stored, 5, 5), Near(kRed, 1));
    const auto turned = Read(bytes, upright);
    EXPECT_EQ(turned->shape[1], i >= 5 && i <= 8 ? 64 : 96);
    EXPECT_THAT(PixelOf(*turned, 5, 5), Near(right[i], 1));
  }
  EXPECT_EQ(Read(Dirty("orientation_broken.jpg"), upright)->shape[1], 96);
}

TEST(DirtyFilesTest, AHugeClaimTakesNoMemory) {
  for (const char* name : {"flat_claim.png", "claim.gif", "claim.bmp", "claim.ppm"}) {
    const std::vector<uint8_t> bytes = Dirty(name);
    ByteBuffer pixels;
    const auto decoded = DecodeBy(bytes, {.max_pixels = kMaxPixels}, pixels);
    EXPECT_THAT(std::string(decoded.status().message()),
                HasSubstr("the limit is 178956970 pixels"));
    EXPECT_EQ(pixels.capacity(), 0u) << name;
  }
  for (const char* name : {"webp_named.jpg", "tiff_named.jpg", "png_named.jpg", "cmyk_quad.jpg"}) {
    ByteBuffer pixels;
    const auto decoded = DecodeBy(Dirty(name), {.max_pixels = 96 * 64 - 1}, pixels);
    EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("claims 96 x 64 pixels"))
        << name;
    EXPECT_EQ(pixels.capacity(), 0u) << name;
  }
  EXPECT_EQ(RefusalOf("zero.png"), "PNG cannot be decoded: Invalid IHDR data");
}

std::vector<uint8_t> Joined(std::initializer_list<std::string> parts) {
  std::vector<uint8_t> bytes;
  for (const std::string& part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

std::string Number(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

TEST(DirtyFilesTest, ALargeScreenIsNotPaintedBeforeItsSmallFrameIsThere) {
  constexpr uint64_t kEdge = 3000;
  const std::string edge = Number(kEdge, 2);
  const std::vector<uint8_t> gif =
      Joined({"GIF89a", edge, edge, std::string("\x80\0\0\1\2\3\4\5\6", 9),
              std::string(",\0\0\0\0\4\0\4\0\0\2\1", 12)});
  const std::vector<uint8_t> whole = Dirty("webp_named.jpg");
  std::string picture(whole.begin() + 12, whole.end());
  std::fill(picture.begin() + 16, picture.end(), '\xFF');
  const std::string frame =
      std::string(6, '\0') + Number(95, 3) + Number(63, 3) + std::string(4, '\0') + picture;
  const std::string chunks = "WEBPVP8X" + Number(10, 4) + Number(2, 4) + Number(kEdge - 1, 3) +
                             Number(kEdge - 1, 3) + "ANIM" + Number(6, 4) + std::string(6, '\0') +
                             "ANMF" + Number(frame.size(), 4) + frame;
  const std::vector<uint8_t> webp = Joined({"RIFF", Number(chunks.size(), 4), chunks});
  for (const std::vector<uint8_t>& bytes : {gif, webp}) {
    ByteBuffer pixels;
    const std::span<uint8_t> all = pixels.Resize(4 * kEdge * kEdge);
    std::fill(all.begin(), all.end(), uint8_t{0xAB});
    const auto decoded = DecodeBy(bytes, {.max_pixels = kMaxPixels}, pixels);
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss) << decoded.status();
    EXPECT_THAT(std::string(decoded.status().message()), Not(HasSubstr("claims")));
    const auto touched = std::count_if(all.begin(), all.end(), [](uint8_t b) { return b != 0xAB; });
    EXPECT_LE(touched, static_cast<ptrdiff_t>(100 * 3 * kEdge)) << decoded.status();
  }
}

TEST(DirtyFilesTest, APngTooShortForItsClaimTakesNoMemory) {
  std::vector<uint8_t> bytes = Dirty("png_named.jpg");
  // Its width becomes 16,777,184; the checksum of the header is made anew.
  const std::string header = std::string("IHDR\0\xff\xff\xe0\0\0\0\x0a\x08\x02\0\0\0", 17);
  std::copy(header.begin(), header.end(), bytes.begin() + 12);
  uint32_t crc = 0xFFFFFFFF;
  for (size_t i = 12; i < 29; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320 : 0);
  }
  for (size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<uint8_t>(~crc >> (24 - 8 * i));
  ByteBuffer pixels;
  const auto decoded = DecodeBy(bytes, {.max_pixels = kMaxPixels}, pixels);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("before there can be all pixels"));
  EXPECT_EQ(pixels.capacity(), 0u);
}

TEST(DirtyFilesTest, ATiffOfMoreSamplesThanAPictureHasIsRefused) {
  std::string entries;
  const auto tag = [&](uint64_t number, uint64_t type, uint64_t value) {
    entries += Number(number, 2) + Number(type, 2) + Number(1, 4) + Number(value, 4);
  };
  tag(256, 4, 5000);
  tag(257, 4, 5000);
  tag(258, 3, 8);
  tag(259, 3, 1);
  tag(262, 3, 2);
  tag(273, 4, 8);
  tag(277, 3, 65535);
  tag(278, 4, 5000);
  tag(279, 4, 8);
  const std::vector<uint8_t> bytes =
      Joined({std::string("II*\0\x08\0\0\0\x09\0", 10), entries, Number(0, 4)});
  ByteBuffer pixels;
  const auto decoded = DecodeBy(bytes, {.max_pixels = kMaxPixels}, pixels);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("65535 samples"));
  EXPECT_EQ(pixels.capacity(), 0u);
}

// Goes on by a second whenever it is looked at.
class RunningClock : public Clock {
 public:
  Time Now() const override { return Time(std::chrono::seconds(now_++)); }

 private:
  mutable std::atomic<int> now_ = 0;
};

TEST(DirtyFilesTest, ASlowSampleIsGivenUpAtItsDeadline) {
  const RunningClock clock;
  for (const char* name : {"cmyk_quad.jpg", "png_named.jpg", "gif_named.jpg", "tiff_named.jpg"}) {
    const auto output = Read(Dirty(name), {}, {.max_decode_ms = 500, .clock = &clock});
    EXPECT_EQ(output.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(output.status().message()),
                HasSubstr("is not decoded after 500 ms, the limit of limits.max_decode_ms"))
        << name;
  }
}

TEST(DirtyFilesTest, DeepPngsKeepTheirHighByte) {
  EXPECT_EQ(PixelOf(*Read(Dirty("rgb16.png")), 10, 3), (std::vector{10, 18, 255}));
  EXPECT_EQ(PixelOf(*Read(Dirty("grey16.png")), 90, 3), (std::vector{239, 239, 239}));
  RecipeSpec clip;
  clip.wide = WideMode::kClip;
  EXPECT_EQ(PixelOf(*Read(Dirty("grey16.png"), clip), 90, 3), (std::vector{255, 255, 255}));
}

TEST(DirtyFilesTest, AlphaAndPalettesGiveTheColoursBelow) {
  const auto right = Read(Dirty("png_named.jpg"));
  for (const char* name : {"palette.png", "palette_one.png", "palette_many.png", "rgba.png"}) {
    EXPECT_EQ(Read(Dirty(name))->bytes, right->bytes) << name;
  }
  const auto bits = Read(Dirty("bit1.png"));
  EXPECT_EQ(PixelOf(*bits, 0, 0), (std::vector{255, 255, 255}));
  EXPECT_EQ(PixelOf(*bits, 1, 0), (std::vector{0, 0, 0}));
}

}  // namespace
}  // namespace loaderd::transform
