// SPDX-License-Identifier: Apache-2.0
// Right answers are torchvision.transforms.v2's, made by tests/support/make_batch_answers.py.
#include "server/transform/batch_mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "server/transform/half.h"
#include "server/transform/mix_params.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/transform/answers.h"

namespace loaderd::transform {
namespace {

using ::testing::StartsWith;

BatchKey KeyOf(const Json& answer) {
  const auto part = [&](int i) { return std::stoull(List(answer, "key")[i].string_value()); };
  return {
      .seed = part(0), .epoch = part(1), .step = part(2), .rank = static_cast<uint32_t>(part(3))};
}

std::vector<uint8_t> FromHex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(MixParamsTest, LamBoxAndChoiceAreThePythonMirrors) {
  const Json json = ReadJson(Fixtures() / "batch_answers.json");
  ASSERT_EQ(List(json, "parameters").size(), 121);
  for (const JsonValue& value : List(json, "parameters")) {
    const Json& answer = value.struct_value();
    const BatchKey key = KeyOf(answer);
    const std::array alphas = {0.0001, 0.01, 0.2, 0.5, 0.999, 1.0, 1.5, 8.0, 10000.0};
    for (int i = 0; i < 9; ++i) {
      EXPECT_EQ(BetaOf(key.At(2), alphas[static_cast<size_t>(i)]),
                List(answer, "lam")[i].number_value())
          << At(answer, "key").ShortDebugString() << alphas[static_cast<size_t>(i)];
    }
    for (int i = 0; i < 3; ++i) {
      const Cut cut = CutOf(key.At(1), std::array{0.2, 1.0, 3.0}[static_cast<size_t>(i)], 33, 50);
      const auto& right = List(answer, "cut")[i].list_value();
      const std::array ours = {1.0 * cut.x0, 1.0 * cut.y0, 1.0 * cut.x1, 1.0 * cut.y1, cut.lam};
      for (int j = 0; j < 5; ++j) {
        EXPECT_EQ(ours[static_cast<size_t>(j)], right.values(j).number_value());
      }
    }
    EXPECT_EQ(Chosen(key.At(0), 3, {}), List(answer, "choice")[0].number_value());
    EXPECT_EQ(Chosen(key.At(0), 3, {0.5, 0.0, 2.0}), List(answer, "choice")[1].number_value());
  }
}

// Of Beta(a, a) the mean is 1/2 and the variance 1 / (4 (2 a + 1)).
TEST(MixParamsTest, LamHasTheMomentsOfBeta) {
  for (const double alpha : {0.05, 0.2, 0.8, 1.0, 1.2, 4.0, 50.0}) {
    constexpr int kDraws = 40000;
    double sum = 0;
    double squares = 0;
    for (uint64_t step = 0; step < kDraws; ++step) {
      const double lam = BetaOf(BatchKey{.seed = 9, .step = step}.At(0), alpha);
      ASSERT_TRUE(lam >= 0 && lam <= 1) << lam;
      sum += lam;
      squares += (lam - 0.5) * (lam - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 4 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws / variance, 1, 0.03) << alpha;
  }
}

TEST(MixParamsTest, RanksEpochsStepsAndPlacesDrawApart) {
  const BatchKey key{.seed = 1, .epoch = 2, .step = 3, .rank = 4};
  std::vector<double> all = {BetaOf(key.At(0), 1), BetaOf(key.At(1), 1)};
  for (BatchKey other : {BatchKey{0, 2, 3, 4}, {1, 0, 3, 4}, {1, 2, 0, 4}, {1, 2, 3, 0}}) {
    all.push_back(BetaOf(other.At(0), 1));
  }
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

DType DTypeOf(const std::string& name) {
  for (const DType dtype : {DType::kUint8, DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  ADD_FAILURE() << name;
  return DType::kUint8;
}

RecipeSpec TensorsOf(DType dtype, Size size) {
  RecipeSpec spec;
  spec.steps = {step::CenterCrop{.size = size}, step::PilToTensor{}};
  if (dtype != DType::kUint8) spec.steps.push_back(step::ConvertImageDtype{.dtype = dtype});
  return spec;
}

StatusOr<std::unique_ptr<const BatchMix>> CompileFor(const RecipeSpec& spec,
                                                     const BatchStep& step) {
  ASSIGN_OR_RETURN(const auto recipe, Recipe::Compile(spec, {}));
  return BatchMix::Compile(step, spec, *recipe);
}

TEST(BatchMixTest, ImagesAndLabelsEqualTorchvisionsBitForBit) {
  const Json json = ReadJson(Fixtures() / "batch_answers.json");
  ASSERT_EQ(List(json, "batches").size(), 28);
  for (const JsonValue& value : List(json, "batches")) {
    const Json& answer = value.struct_value();
    SCOPED_TRACE(Text(answer, "kind") + " " + Text(answer, "dtype"));
    const double alpha = At(answer, "alpha").number_value();
    BatchStep step = step::MixUp{.alpha = alpha, .num_classes = 6};
    if (Text(answer, "kind") == "CutMix") step = step::CutMix{.alpha = alpha, .num_classes = 6};
    ASSERT_OK_AND_ASSIGN(const auto mix,
                         CompileFor(TensorsOf(DTypeOf(Text(answer, "dtype")), {5, 7}), step));
    EXPECT_EQ(mix->num_classes(), 6);
    std::vector<int64_t> labels;
    for (const auto& label : List(answer, "labels")) {
      labels.push_back(static_cast<int64_t>(label.number_value()));
    }
    const std::vector<uint8_t> images = FromHex(Text(answer, "images"));
    std::vector<uint8_t> mixed(images.size());
    std::vector<uint8_t> mixed_labels(labels.size() * 6 * sizeof(float), 0xAA);
    const std::span<const int64_t> plain(labels);
    mix->Apply({.seed = 1, .epoch = 2, .step = static_cast<uint64_t>(Number(answer, "step"))},
               {.count = static_cast<uint32_t>(labels.size()),
                .images = images,
                .labels = {reinterpret_cast<const uint8_t*>(plain.data()), plain.size_bytes()}},
               {.images = mixed, .labels = mixed_labels});
    EXPECT_EQ(mixed, FromHex(Text(answer, "mixed")));
    EXPECT_EQ(mixed_labels, FromHex(Text(answer, "mixed_labels")));
  }
}

TEST(BatchMixTest, ABatchWithoutSamplesIsLeftAlone) {
  ASSERT_OK_AND_ASSIGN(const auto mix,
                       CompileFor(TensorsOf(DType::kFloat32, {4, 4}), step::MixUp{}));
  mix->Apply({}, {}, {});
}

TEST(BatchMixTest, AChoiceAppliesTheOneThatItDraws) {
  const step::BatchChoice choice = {
      .transforms = {step::CutMix{.num_classes = 2}, step::MixUp{.num_classes = 2}}};
  ASSERT_OK_AND_ASSIGN(const auto mix, CompileFor(TensorsOf(DType::kFloat32, {8, 8}), choice));
  constexpr size_t kElements = 2 * 3 * 8 * 8;
  std::vector<float> images(kElements, 0.0F);
  std::fill(images.begin() + kElements / 2, images.end(), 1.0F);
  const std::array<int64_t, 2> labels = {0, 1};
  int mixed_up = 0;
  for (uint64_t step = 0; step < 40; ++step) {
    const BatchKey key{.seed = 3, .step = step};
    std::vector<float> mixed(kElements);
    std::array<float, 4> soft{};
    const auto bytes = [](auto& values) {
      return std::span(reinterpret_cast<uint8_t*>(values.data()),
                       values.size() * sizeof(values[0]));
    };
    mix->Apply(key,
               {.count = 2,
                .images = bytes(images),
                .labels = {reinterpret_cast<const uint8_t*>(labels.data()), sizeof(labels)}},
               {.images = bytes(mixed), .labels = bytes(soft)});
    const bool is_mix_up = Chosen(key.At(0), 2, {}) == 1;
    const double lam = is_mix_up ? BetaOf(key.At(2), 1) : CutOf(key.At(1), 1, 8, 8).lam;
    EXPECT_EQ(soft[0], static_cast<float>(lam)) << step;
    EXPECT_EQ(soft[1], static_cast<float>(1 - lam)) << step;
    if (is_mix_up) {
      EXPECT_EQ(mixed[5], static_cast<float>(1 - lam));
    } else {
      EXPECT_TRUE(mixed[5] == 0 || mixed[5] == 1);
    }
    mixed_up += is_mix_up ? 1 : 0;
  }
  EXPECT_GT(mixed_up, 10);
  EXPECT_LT(mixed_up, 30);
}

TEST(BatchMixTest, WhatItCannotMixIsRefusedWithTheStepsPath) {
  RecipeSpec image;
  image.steps = {step::CenterCrop{.size = {4, 4}}};
  const RecipeSpec bytes = TensorsOf(DType::kUint8, {4, 4});
  EXPECT_THAT(CompileFor(image, step::MixUp{}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "batch_transform.mix_up: needs a float tensor; put ToTensor into "
                       "transform"));
  EXPECT_THAT(CompileFor(image, step::CutMix{}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("batch_transform.cut_mix: needs a tensor; put PILToTensor")));
  EXPECT_THAT(CompileFor(bytes, step::MixUp{}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("batch_transform.mix_up: needs a float tensor; put ToTensor or "
                                  "ConvertImageDtype")));
  EXPECT_THAT(
      CompileFor(bytes, step::BatchChoice{.transforms = {step::CutMix{}, step::MixUp{}}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               StartsWith("batch_transform.random_choice.transforms[1].mix_up: needs a float")));
  EXPECT_TRUE(CompileFor(bytes, step::CutMix{}).ok());
}

TEST(HalfTest, EveryHalfIsItselfAndAllBetweenRoundsHalfToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfValue(half);
    if (std::isnan(value)) {
      EXPECT_EQ(HalfBits(value), (half & 0x8000) | 0x7E00);
      continue;
    }
    ASSERT_EQ(HalfBits(value), half) << bits;
    if ((bits & 0x7FFF) >= 0x7BFF) continue;  // the next one is infinite
    const float next = HalfValue(static_cast<uint16_t>(bits + 1));
    const float middle = (value + next) / 2;
    const auto even = static_cast<uint16_t>(half + (half & 1));
    ASSERT_EQ(HalfBits(middle), even) << bits;
    ASSERT_EQ(HalfBits(std::nextafter(middle, value)), half) << bits;
    ASSERT_EQ(HalfBits(std::nextafter(middle, next)), half + 1) << bits;
  }
  EXPECT_EQ(HalfBits(65519.0F), 0x7BFF);
  EXPECT_EQ(HalfBits(65520.0F), 0x7C00);
  EXPECT_EQ(HalfBits(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(HalfValue(0x7C00), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace loaderd::transform
