// SPDX-License-Identifier: Apache-2.0
#include "server/transform/random_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "server/transform/augment_policies.h"
#include "tests/unit/transform/answers.h"

namespace loaderd::transform {
namespace {
using ::testing::ElementsAreArray;

constexpr int kHeight = 375;
constexpr int kWidth = 501;

std::vector<double> Numbers(const Json& json, const std::string& name) {
  std::vector<double> numbers;
  for (const JsonValue& value : List(json, name)) numbers.push_back(value.number_value());
  return numbers;
}

std::vector<double> AsNumbers(const std::optional<Box>& box) {
  if (!box) return {};
  return {static_cast<double>(box->top), static_cast<double>(box->left),
          static_cast<double>(box->height), static_cast<double>(box->width)};
}

Place PlaceOf(const Json& answer) {
  const auto part = [&](int i) { return std::stoull(List(answer, "key")[i].string_value()); };
  return {.key = {.seed = part(0), .epoch = part(1), .index = part(2)},
          .number = static_cast<uint32_t>(part(3))};
}

void ExpectOp(const AugmentOp& op, const google::protobuf::ListValue& right) {
  static const std::vector<std::string> kNames = {
      "Identity",  "ShearX",     "ShearY",       "TranslateX", "TranslateY",
      "Rotate",    "Brightness", "Color",        "Contrast",   "Sharpness",
      "Posterize", "Solarize",   "AutoContrast", "Equalize",   "Invert"};
  ASSERT_EQ(right.values_size(), 2);
  EXPECT_EQ(kNames[static_cast<size_t>(op.kind)], right.values(0).string_value());
  EXPECT_EQ(op.magnitude, right.values(1).number_value());
}

class RandomParamsTest : public ::testing::Test {
 protected:
  const Json json_ = ReadJson(Fixtures() / "random_answers.json");
  const google::protobuf::RepeatedPtrField<JsonValue>& answers_ = List(json_, "answers");
};

TEST_F(RandomParamsTest, GeometryIsThePythonMirrors) {
  ASSERT_GE(answers_.size(), 121);
  for (const JsonValue& value : answers_) {
    const Json& answer = value.struct_value();
    const Place place = PlaceOf(answer);
    EXPECT_EQ(AsNumbers(RandomCropBox(place, kHeight, kWidth, {224, 200})),
              Numbers(answer, "crop"));
    EXPECT_EQ(RotationAngle(place, {.degrees = {-45, 30}}), At(answer, "angle").number_value());
    const AffineParams affine = AffineOf(place,
                                         {.degrees = {-20, 50},
                                          .translate = std::array{0.1, 0.3},
                                          .scale = step::Interval{0.5, 1.75},
                                          .shear_x = step::Interval{-10, 10},
                                          .shear_y = step::Interval{3, 4}},
                                         kHeight, kWidth);
    EXPECT_THAT((std::vector<double>{affine.angle, static_cast<double>(affine.translate[0]),
                                     static_cast<double>(affine.translate[1]), affine.scale,
                                     affine.shear[0], affine.shear[1]}),
                ElementsAreArray(Numbers(answer, "affine")));
    std::vector<double> corners;
    for (const auto& list : List(answer, "perspective")) corners.push_back(list.number_value());
    std::vector<double> ours;
    if (const auto view =
            PerspectiveCorners(place, {.distortion_scale = 0.6, .p = 0.8}, kHeight, kWidth)) {
      for (const auto& corner : *view) ours.insert(ours.end(), {1.0 * corner[0], 1.0 * corner[1]});
    }
    EXPECT_EQ(ours, corners);
    EXPECT_EQ(AsNumbers(ErasedBox(place, {.p = 0.9}, kHeight, kWidth)), Numbers(answer, "erased"));
  }
}

TEST_F(RandomParamsTest, ColoursChoicesAndNoiseAreThePythonMirrors) {
  for (const JsonValue& value : answers_) {
    const Json& answer = value.struct_value();
    const Place place = PlaceOf(answer);
    const JitterParams jitter = JitterOf(place, {.brightness = step::Interval{0.6, 1.4},
                                                 .contrast = step::Interval{0.2, 1.8},
                                                 .saturation = {},
                                                 .hue = step::Interval{-0.1, 0.1}});
    std::vector<double> ours(jitter.order.begin(), jitter.order.end());
    for (const auto& factor : jitter.factors) {
      if (factor) ours.push_back(*factor);
    }
    EXPECT_EQ(ours, Numbers(answer, "jitter"));
    EXPECT_EQ(BlurSigma(place, {.sigma = {0.1, 2.0}}), At(answer, "sigma").number_value());
    std::array<uint8_t, 7> order = {0, 1, 2, 3, 4, 5, 6};
    Shuffle(place, order);
    EXPECT_EQ(std::vector<double>(order.begin(), order.end()), Numbers(answer, "order"));
    EXPECT_EQ((std::vector<double>{static_cast<double>(Chosen(place, 5, {})),
                                   static_cast<double>(Chosen(place, 3, {0.5, 0.0, 2.0}))}),
              Numbers(answer, "choice"));
    Noise noise(place);
    const std::vector<double> elements = Numbers(answer, "noise");
    for (size_t i = 0; i < elements.size(); ++i) {
      EXPECT_FLOAT_EQ(noise.At(i), static_cast<float>(elements[i]));
    }
  }
}

TEST_F(RandomParamsTest, AugmentationsAreThePythonMirrors) {
  for (const JsonValue& value : answers_) {
    const Json& answer = value.struct_value();
    const Place place = PlaceOf(answer);
    SCOPED_TRACE(At(answer, "key").ShortDebugString());
    for (int i = 0; i < 3; ++i) {
      ExpectOp(RandAugmentOp(place, {.num_ops = 3, .magnitude = 7}, i, kHeight, kWidth),
               List(answer, "rand_augment")[i].list_value());
    }
    ExpectOp(TrivialAugmentOp(place, {}), At(answer, "trivial_augment").list_value());
    const std::array policies = {step::AugmentPolicy::kImageNet, step::AugmentPolicy::kCifar10,
                                 step::AugmentPolicy::kSvhn};
    for (int i = 0; i < 3; ++i) {
      const auto& right = List(answer, "auto_augment")[i].list_value();
      int happened = 0;
      for (const auto& op :
           AutoAugmentOps(place, {.policy = policies[static_cast<size_t>(i)]}, kHeight, kWidth)) {
        if (!op) continue;
        ASSERT_LT(happened, right.values_size());
        ExpectOp(*op, right.values(happened++).list_value());
      }
      EXPECT_EQ(happened, right.values_size());
    }
  }
}

TEST(RandomParamsDistributionTest, ParametersFillTheirRangesEvenly) {
  constexpr int kSamples = 20000;
  double angle = 0;
  double least = 1e9;
  double most = -1e9;
  double noise = 0;
  double noise_squared = 0;
  int erased = 0;
  std::array<int, 4> first{};
  for (uint64_t index = 0; index < kSamples; ++index) {
    const Place place = {.key = {.seed = 1, .index = index}, .number = 3};
    const double turned = RotationAngle(place, {.degrees = {-30, 50}});
    angle += turned;
    least = std::min(least, turned);
    most = std::max(most, turned);
    ++first[static_cast<size_t>(JitterOf(place, {}).order[0])];
    erased += ErasedBox(place, {}, 100, 80).has_value() ? 1 : 0;
    const double element = Noise(place).At(index % 9);
    noise += element;
    noise_squared += element * element;
  }
  EXPECT_NEAR(angle / kSamples, 10, 0.7);
  EXPECT_GE(least, -30);
  EXPECT_LT(least, -29.9);
  EXPECT_LT(most, 50);
  EXPECT_GT(most, 49.9);
  for (const int count : first) EXPECT_NEAR(count, kSamples / 4, 300);
  EXPECT_NEAR(erased, kSamples / 2, 400);
  EXPECT_NEAR(noise / kSamples, 0, 0.03);
  EXPECT_NEAR(noise_squared / kSamples, 1, 0.05);
}

}  // namespace
}  // namespace loaderd::transform
