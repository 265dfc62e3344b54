// SPDX-License-Identifier: Apache-2.0
// The right answers on real images, made by torchvision. They lie beside the source tree (or where
// LOADERD_SHARED says).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "server/transform/image_ops.h"
#include "server/transform/recipe.h"
#include "tests/unit/transform/answers.h"
#include "tests/unit/transform/decoding.h"

namespace loaderd::transform {
namespace {

class GoldenTest : public ::testing::TestWithParam<Reference> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(Shared() / "golden/pixels.json")) {
      GTEST_SKIP() << "no right answers in " << Shared() / "golden"
                   << "; LOADERD_SHARED names another place";
    }
    answers_ = ReadJson(Shared() / "golden/pixels.json");
  }

  static std::vector<uint8_t> Encoded(const std::string& file) {
    return ReadBytes(Shared() / "data/imagenet-sample-400" / file);
  }

  StatusOr<Recipe::Output> Apply(std::vector<Step> steps, const std::string& file) {
    const auto recipe = Recipe::Compile({.reference = GetParam(), .steps = std::move(steps)}, {});
    if (!recipe.ok()) return recipe.status();
    return (*recipe)->ApplyToNew(Encoded(file), {}, scratch_);
  }

  bool is_old() const { return GetParam() == Reference::kPillow12; }

  Json answers_;
  Scratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(References, GoldenTest,
                         ::testing::Values(Reference::kPillow13, Reference::kPillow12),
                         [](const auto& info) {
                           return info.param == Reference::kPillow13 ? "Pillow13" : "Pillow12";
                         });

TEST_P(GoldenTest, EvalAsBytesAndAsFloats) {
  const Json& eval = Object(answers_, "eval");
  const auto& files = List(answers_, "files");
  const auto& bytes = List(eval, is_old() ? "u8_sha256_pillow12" : "u8_sha256");
  const auto& floats = List(eval, "f32_sha256");
  ASSERT_EQ(files.size(), bytes.size());
  ASSERT_EQ(files.size(), floats.size());
  ASSERT_GE(files.size(), 28);
  const std::vector<Step> image_steps = {ResizeTo(256), step::CenterCrop{{224, 224}}};
  std::vector<Step> steps = image_steps;
  steps.emplace_back(step::ToTensor{});
  steps.emplace_back(step::Normalize{.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}});
  for (int i = 0; i < files.size(); ++i) {
    const std::string& file = files[i].string_value();
    SCOPED_TRACE(file);
    const auto image = Apply(image_steps, file);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_THAT(image->shape, ::testing::ElementsAre(224, 224, 3));
    EXPECT_EQ(HashOf(image->bytes), bytes[i].string_value());
    const auto tensor = Apply(steps, file);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_THAT(tensor->shape, ::testing::ElementsAre(3, 224, 224));
    // The floats were made with the newer reference; they hold for the older one where the bytes
    // are the same.
    if (bytes[i].string_value() == List(eval, "u8_sha256")[i].string_value()) {
      EXPECT_EQ(HashOf(tensor->bytes), floats[i].string_value());
    }
  }
}

TEST_P(GoldenTest, ResizedCropsWithFlips) {
  const auto& boxes = List(answers_, "resized_crop_224");
  ASSERT_GE(boxes.size(), 84);
  const ImageRules rules = {.reference = GetParam(), .max_pixels = kMaxPixels};
  ImageMemory& memory = scratch_.impl().memory;
  for (const JsonValue& value : boxes) {
    const Json& answer = value.struct_value();
    SCOPED_TRACE(answer.ShortDebugString());
    const StatusOr<Image> image =
        DecodePixels(Encoded(Text(answer, "file")), ImageMode::kRgb, kMaxPixels, memory.Next());
    ASSERT_TRUE(image.ok()) << image.status();
    const Box box = {.top = Number(answer, "top"),
                     .left = Number(answer, "left"),
                     .height = Number(answer, "height"),
                     .width = Number(answer, "width")};
    StatusOr<Image> crop = CropAndResize(*image, box, {224, 224}, Filter::kBilinear, rules, memory);
    ASSERT_TRUE(crop.ok()) << crop.status();
    if (At(answer, "flip").bool_value()) crop = FlipHorizontally(*crop, memory.Next());
    EXPECT_EQ(HashOf(*crop), Text(answer, is_old() ? "sha256_pillow12" : "sha256"));
  }
}

// The set has these for the newer reference only.
class GoldenMoreTest : public GoldenTest {};
INSTANTIATE_TEST_SUITE_P(References, GoldenMoreTest, ::testing::Values(Reference::kPillow13),
                         [](const auto&) { return "Pillow13"; });

TEST_P(GoldenMoreTest, OtherSizesFiltersPaddingAndGrey) {
  const std::map<std::string, std::vector<Step>> steps = {
      {"Resize((224,224),bilinear)", {ResizeTo(Size{224, 224})}},
      {"Resize((33,517),bilinear)", {ResizeTo(Size{33, 517})}},
      {"Resize(232,bicubic)+CenterCrop(224)",
       {ResizeTo(232, Filter::kBicubic), step::CenterCrop{{224, 224}}}},
      {"Resize(288,lanczos)", {ResizeTo(288, Filter::kLanczos)}},
      {"Resize(64,nearest)", {ResizeTo(64, Filter::kNearest)}},
      {"CenterCrop(640) (zero padded)", {step::CenterCrop{{640, 640}}}},
      {"Grayscale(3)+Resize(96)", {step::Grayscale{3}, ResizeTo(96)}},
      {"decode only", {}}};
  const auto& more = List(answers_, "more");
  ASSERT_GE(more.size(), 96);
  for (const JsonValue& value : more) {
    const Json& answer = value.struct_value();
    SCOPED_TRACE(Text(answer, "file") + " " + Text(answer, "transform"));
    ASSERT_TRUE(steps.contains(Text(answer, "transform")));
    const auto output = Apply(steps.at(Text(answer, "transform")), Text(answer, "file"));
    ASSERT_TRUE(output.ok()) << output.status();
    const auto& shape = List(answer, "shape");
    EXPECT_THAT(output->shape,
                ::testing::ElementsAre(shape[0].number_value(), shape[1].number_value(),
                                       shape[2].number_value()));
    EXPECT_EQ(HashOf(output->bytes), Text(answer, "sha256"));
  }
}

// All formats as stored, upright, and with 16-bit grey scaled and clipped.
TEST_P(GoldenTest, ManyFormats) {
  int compared = 0;
  for (const auto& [name, value] : Object(answers_, "formats").fields()) {
    SCOPED_TRACE(name);
    const Json& right = value.struct_value();
    const std::vector<uint8_t> bytes = ReadBytes(Shared() / "golden/formats" / name);
    const std::string& clipped = Text(right, "rgb_sha256");
    const std::string& scaled = Text(right, "scaled_rgb_sha256");
    const auto hash = [&](WideMode wide, bool exif_transpose) {
      RecipeSpec spec;
      spec.wide = wide;
      spec.exif_transpose = exif_transpose;
      const auto recipe = Recipe::Compile(spec, {});
      const auto output = (*recipe)->ApplyToNew(bytes, {}, scratch_);
      return output.ok() ? HashOf(output->bytes) : std::string(output.status().message());
    };
    EXPECT_EQ(hash(WideMode::kClip, false), clipped);
    EXPECT_EQ(hash(WideMode::kClip, true), Text(right, "upright_rgb_sha256"));
    EXPECT_EQ(hash(WideMode::kScale, false), scaled.empty() ? clipped : scaled);
    ++compared;
  }
  EXPECT_GE(compared, 38);
}

}  // namespace
}  // namespace loaderd::transform
