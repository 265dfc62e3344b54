// SPDX-License-Identifier: Apache-2.0
// torchvision's functions against its own answers: the committed ones, and the larger table beside
// the source tree (or where LOADERD_SHARED says).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>

#include "server/transform/blur.h"
#include "server/transform/color_ops.h"
#include "server/transform/geometry_ops.h"
#include "server/transform/image_ops.h"
#include "server/transform/jpeg_decoder.h"
#include "server/transform/recipe.h"
#include "tests/unit/transform/answers.h"
#include "tests/unit/transform/decoding.h"

namespace loaderd::transform {
namespace {

constexpr ImageRules kRules = {.max_pixels = kMaxPixels};

std::vector<double> Numbers(const Json& json, const std::string& name) {
  std::vector<double> numbers;
  for (const JsonValue& value : List(json, name)) numbers.push_back(value.number_value());
  if (numbers.empty()) numbers.push_back(At(json, name).number_value());
  return numbers;
}

double Real(const Json& json, const std::string& name) { return At(json, name).number_value(); }

Filter FilterOf(const Json& json) {
  static const std::map<std::string, Filter> kFilters = {{"NEAREST", Filter::kNearest},
                                                         {"BILINEAR", Filter::kBilinear},
                                                         {"BICUBIC", Filter::kBicubic}};
  return kFilters.at(Text(json, "interpolation"));
}

Fill FillOf(const Json& json) {
  const std::vector<double> values = Numbers(json, "fill");
  Fill fill{};
  for (size_t c = 0; c < 3; ++c) {
    fill[c] = static_cast<uint8_t>(values[values.size() == 1 ? 0 : c]);
  }
  return fill;
}

std::optional<Point> CenterOf(const Json& json) {
  if (!json.fields().contains("center")) return std::nullopt;
  const std::vector<double> center = Numbers(json, "center");
  return Point{center[0], center[1]};
}

Corners CornersOf(const Json& json, const std::string& name) {
  Corners corners;
  for (int i = 0; i < 4; ++i) {
    for (int axis = 0; axis < 2; ++axis) {
      corners[static_cast<size_t>(i)][static_cast<size_t>(axis)] =
          static_cast<int>(List(json, name)[i].list_value().values(axis).number_value());
    }
  }
  return corners;
}

StatusOr<Image> PadAs(const Image& image, const Json& answer, ImageMemory& memory) {
  static const std::map<std::string, PadMode> kModes = {{"constant", PadMode::kConstant},
                                                        {"edge", PadMode::kEdge},
                                                        {"reflect", PadMode::kReflect},
                                                        {"symmetric", PadMode::kSymmetric}};
  const std::vector<double> sides = Numbers(answer, "padding");
  const Padding padding = {.left = static_cast<int>(sides[0]),
                           .top = static_cast<int>(sides[1]),
                           .right = static_cast<int>(sides[2]),
                           .bottom = static_cast<int>(sides[3])};
  return Pad(image, padding, kModes.at(Text(answer, "padding_mode")), FillOf(answer), kRules,
             memory);
}

AffineParams AffineOf(const Json& answer) {
  const std::vector<double> translate = Numbers(answer, "translate");
  const std::vector<double> shear = Numbers(answer, "shear");
  return {.angle = Real(answer, "angle"),
          .translate = {static_cast<int>(translate[0]), static_cast<int>(translate[1])},
          .scale = Real(answer, "scale"),
          .shear = {shear[0], shear[1]}};
}

StatusOr<Image> BlurAs(const Image& image, const Json& answer, ImageMemory& memory) {
  const std::vector<double> kernel = Numbers(answer, "kernel_size");
  const std::vector<double> sigma = Numbers(answer, "sigma");
  return GaussianBlur(image, {static_cast<int>(kernel[0]), static_cast<int>(kernel[1])},
                      {sigma[0], sigma[1]}, memory);
}

// What the function of an answer makes of `image`.
StatusOr<Image> Apply(const Json& answer, const Image& image, ImageMemory& memory) {
  using Op = std::function<StatusOr<Image>(const Json&, const Image&, ImageMemory&)>;
  static const std::map<std::string, Op> kOps = {
      {"adjust_brightness",
       [](const Json& a, const Image& i, ImageMemory& m) {
         return AdjustBrightness(i, Real(a, "brightness_factor"), m);
       }},
      {"adjust_contrast",
       [](const Json& a, const Image& i, ImageMemory& m) {
         return AdjustContrast(i, Real(a, "contrast_factor"), m);
       }},
      {"adjust_saturation",
       [](const Json& a, const Image& i, ImageMemory& m) {
         return AdjustSaturation(i, Real(a, "saturation_factor"), m);
       }},
      {"adjust_sharpness",
       [](const Json& a, const Image& i, ImageMemory& m) {
         return AdjustSharpness(i, Real(a, "sharpness_factor"), m);
       }},
      {"adjust_hue", [](const Json& a, const Image& i,
                        ImageMemory& m) { return AdjustHue(i, Real(a, "hue_factor"), m); }},
      {"posterize", [](const Json& a, const Image& i,
                       ImageMemory& m) { return Posterize(i, Number(a, "bits"), m); }},
      {"solarize", [](const Json& a, const Image& i,
                      ImageMemory& m) { return Solarize(i, Real(a, "threshold"), m); }},
      {"equalize", [](const Json&, const Image& i, ImageMemory& m) { return Equalize(i, m); }},
      {"autocontrast",
       [](const Json&, const Image& i, ImageMemory& m) { return AutoContrast(i, m); }},
      {"invert", [](const Json&, const Image& i, ImageMemory& m) { return Invert(i, m); }},
      {"hflip",
       [](const Json&, const Image& i, ImageMemory& m) { return FlipHorizontally(i, m.Next()); }},
      {"vflip", [](const Json&, const Image& i, ImageMemory& m) { return FlipVertically(i, m); }},
      {"rgb_to_grayscale",
       [](const Json& a, const Image& i, ImageMemory& m) {
         return ToGrey(i, Number(a, "num_output_channels"), m);
       }},
      {"rotate",
       [](const Json& a, const Image& i, ImageMemory& m) {
         return Rotate(i, Real(a, "angle"), FilterOf(a), At(a, "expand").bool_value(), CenterOf(a),
                       FillOf(a), kRules, m);
       }},
      {"affine",
       [](const Json& a, const Image& i, ImageMemory& m) {
         return Affine(i, AffineOf(a), FilterOf(a), CenterOf(a), FillOf(a), m);
       }},
      {"perspective",
       [](const Json& a, const Image& i, ImageMemory& m) {
         return Perspective(i, CornersOf(a, "startpoints"), CornersOf(a, "endpoints"), FilterOf(a),
                            FillOf(a), m);
       }},
      {"pad", [](const Json& a, const Image& i, ImageMemory& m) { return PadAs(i, a, m); }},
      {"gaussian_blur",
       [](const Json& a, const Image& i, ImageMemory& m) { return BlurAs(i, a, m); }}};
  const auto op = kOps.find(Text(answer, "op"));
  if (op == kOps.end()) return absl::NotFoundError("no such function: " + Text(answer, "op"));
  return op->second(answer, image, memory);
}

std::vector<uint8_t> PixelsOf(const Image& image) {
  std::vector<uint8_t> pixels;
  for (int y = 0; y < image.height; ++y) {
    pixels.insert(pixels.end(), image.Row(y), image.Row(y) + image.RowBytes());
  }
  return pixels;
}

void ExpectWithinOne(const std::vector<uint8_t>& is, std::span<const uint8_t> right) {
  ASSERT_EQ(is.size(), right.size());
  int differ = 0;
  for (size_t i = 0; i < is.size(); ++i) {
    ASSERT_LE(std::abs(is[i] - right[i]), 1) << "at " << i;
    differ += is[i] != right[i] ? 1 : 0;
  }
  EXPECT_LE(differ, static_cast<int>(is.size() / 1000));
}

std::vector<uint8_t> FromHex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

void ExpectShape(const Image& image, const Json& answer) {
  const auto& shape = List(answer, "shape");
  const int channels = shape.size() == 3 ? static_cast<int>(shape[2].number_value()) : 1;
  ASSERT_THAT((std::array{image.height, image.width, image.channels}),
              ::testing::ElementsAre(static_cast<int>(shape[0].number_value()),
                                     static_cast<int>(shape[1].number_value()), channels));
}

class OpsTest : public ::testing::Test {
 protected:
  ImageMemory& memory() { return scratch_.impl().memory; }
  Scratch scratch_;
};

TEST_F(OpsTest, EqualTorchvisionOnTheFixtures) {
  const Json answers = ReadJson(Fixtures() / "op_answers.json");
  ASSERT_GE(List(answers, "results").size(), 700);
  for (const JsonValue& value : List(answers, "results")) {
    const Json& answer = value.struct_value();
    SCOPED_TRACE(answer.ShortDebugString());
    const ImageMode mode = Text(answer, "mode") == "L" ? ImageMode::kL : ImageMode::kRgb;
    StatusOr<Image> source =
        DecodePixels(Fixture(Text(answer, "file")), mode, kMaxPixels, memory().Next());
    ASSERT_TRUE(source.ok()) << source.status();
    if (List(answer, "crop").size() == 2) source = source->Crop({.height = 17, .width = 31});
    const StatusOr<Image> image = Apply(answer, *source, memory());
    ASSERT_TRUE(image.ok()) << image.status();
    ASSERT_NO_FATAL_FAILURE(ExpectShape(*image, answer));
    if (Text(answer, "hex").empty()) {
      EXPECT_EQ(HashOf(*image), Text(answer, "sha256"));
    } else {
      ExpectWithinOne(PixelsOf(*image), FromHex(Text(answer, "hex")));
    }
  }
}

TEST_F(OpsTest, EqualTorchvisionOnTheLargeTable) {
  const std::filesystem::path golden = Shared() / "golden";
  if (!std::filesystem::exists(golden / "ops.json")) {
    GTEST_SKIP() << "no right answers in " << golden << "; LOADERD_SHARED names another place";
  }
  const Json answers = ReadJson(golden / "ops.json");
  ASSERT_GE(List(answers, "results").size(), 504);
  const auto recipe = Recipe::Compile({.steps = {ResizeTo(256), step::CenterCrop{{224, 224}}}}, {});
  ASSERT_TRUE(recipe.ok());
  std::map<std::string, std::vector<uint8_t>> sources;
  for (const JsonValue& value : List(answers, "results")) {
    const Json& answer = value.struct_value();
    SCOPED_TRACE(answer.ShortDebugString());
    const std::string& file = Text(answer, "file");
    if (!sources.contains(file)) {
      const auto source = (*recipe)->ApplyToNew(
          ReadBytes(Shared() / "data/imagenet-sample-400" / file), {}, scratch_);
      ASSERT_TRUE(source.ok()) << source.status();
      sources[file] = source->bytes;
    }
    const StatusOr<Image> image =
        Apply(answer, Contiguous(sources[file].data(), 224, 224, 3), memory());
    ASSERT_TRUE(image.ok()) << image.status();
    ASSERT_NO_FATAL_FAILURE(ExpectShape(*image, answer));
    if (Text(answer, "op") != "gaussian_blur") {
      EXPECT_EQ(HashOf(*image), Text(answer, "sha256"));
      continue;
    }
    // The array is the end of its file: numpy's header has no fixed length.
    const std::vector<uint8_t> array = ReadBytes(golden / Text(answer, "npy"));
    ASSERT_GT(array.size(), image->Bytes());
    ExpectWithinOne(PixelsOf(*image), std::span(array).last(image->Bytes()));
  }
}

TEST_F(OpsTest, AnImageTooSmallForTheKernelIsRefused) {
  const std::vector<uint8_t> pixels(12);
  const auto blurred =
      GaussianBlur(Contiguous(pixels.data(), 3, 4, 1), {3, 7}, {1.0, 1.0}, memory());
  EXPECT_EQ(blurred.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(blurred.status().message(),
            "the image of 4 x 3 pixels is too small for a kernel of 3 x 7; it must be larger than "
            "half of it");
}

TEST_F(OpsTest, AResultOverTheLimitIsRefused) {
  const std::vector<uint8_t> pixels(300);
  const Image image = Contiguous(pixels.data(), 10, 10, 3);
  const ImageRules rules = {.max_pixels = 150};
  EXPECT_EQ(Rotate(image, 45, Filter::kNearest, true, {}, {}, rules, memory()).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(Pad(image, {.left = 6}, PadMode::kEdge, {}, rules, memory()).status().code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace loaderd::transform
