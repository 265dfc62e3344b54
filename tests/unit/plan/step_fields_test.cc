// SPDX-License-Identifier: Apache-2.0
// Each field of each step: values that are refused with the field's path, and values that make
// another job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "loaderd/v1/job.pb.h"
#include "server/plan/job.h"
#include "tests/support/status_matchers.h"

namespace loaderd::plan {
namespace {

using testing::StartsWith;

struct Field {
  std::string step;
  std::string name;
  std::string rest;  // the fields without which there is no such step
  std::string base;  // a good value; empty: left out
  std::vector<std::string> bad;
  std::vector<std::string> others;  // good values of other meaning than `base`
};

const std::vector<std::string> kBadP = {"-0.1", "1.1", R"("NaN")", R"("x")"};
const std::vector<std::string> kOtherP = {"0.25", "1"};
const std::vector<std::string> kBadWarp = {"4", "6", "70", R"("NICE")"};
const std::vector<std::string> kBadFill = {"[1,2]", "[-1]", "[256]", "[0,0,300]", R"(["NaN"])"};
const std::vector<std::string> kOtherFill = {"[9]", "[0,0,9]"};
const std::vector<std::string> kBadSize = {"[]", "[0]", "[65536]", "[1,-1]", "[1,2,3]"};
const std::vector<std::string> kOtherSize = {"[9]", "[8,9]"};
const std::vector<std::string> kBadPadding = {"[-1]", "[65536]", "[1,2,3]", "[1,2,3,-4]"};
const std::vector<std::string> kBadCenter = {"[1]", "[1,2,3]", R"([0,"NaN"])", "[0,1000001]"};
const std::vector<std::string> kBadFactor = {"[1]", "[2,1]", "[-0.5,1]", "[0,1001]"};
const std::vector<std::string> kBadDegrees = {"[]", "[1]", "[2,1]", "[0,3600001]", R"([0,"NaN"])"};
const std::vector<std::string> kBadRatio = {"[1]", "[2,1]", "[0,1]", "[1,10001]"};
const std::vector<std::string> kBadBins = {"1", "0", "1025"};
const std::vector<std::string> kBadBool = {"7", R"("perhaps")"};
const std::string kSize = R"("size":[8])";
const std::string kDegrees = R"("degrees":[-5,5])";
const std::string kHeld = R"("transforms":[{"random_invert":{}}])";
const std::vector<std::string> kBadHeld = {
    R"([{}])", R"([{"random_invert":{"p":2}}])",
    R"([{"random_apply":{"transforms":[{"pad":{"padding":[-1]}}]}}])"};
const std::vector<std::string> kOtherHeld = {
    R"([{"random_equalize":{}}])", R"([{"random_invert":{"p":0.25}}])",
    R"([{"random_invert":{}},{"random_invert":{}}])",
    R"([{"random_apply":{"transforms":[{"random_invert":{}}]}}])"};

const std::vector<Field>& Fields() {
  static const std::vector<Field> fields = {
      {"resize", "size", "", "[8]", kBadSize, {"[9]", "[8,8]"}},
      {"resize", "interpolation", kSize, "", {"7", "-1", R"("x")"}, {"1", "3", "4", "5", "6"}},
      {"resize", "max_size", kSize, "", {"0", "8", "65536"}, {"9", "10"}},
      {"center_crop", "size", "", "[8]", kBadSize, kOtherSize},
      {"random_resized_crop", "size", "", "[8]", kBadSize, kOtherSize},
      {"random_resized_crop",
       "scale",
       kSize,
       "",
       {"[1]", "[2,1]", "[-1,1]", "[0,0]", "[0,101]"},
       {"[0.5,1]", "[0.08,0.9]"}},
      {"random_resized_crop", "ratio", kSize, "", kBadRatio, {"[0.5,1]", "[1,1]"}},
      {"random_resized_crop", "interpolation", kSize, "", {"7"}, {"1", "3"}},
      {"random_horizontal_flip", "p", "", "", kBadP, kOtherP},
      {"grayscale", "num_output_channels", "", "", {"0", "2", "4"}, {"3"}},
      {"convert_image_dtype",
       "dtype",
       "",
       R"("float32")",
       {R"("int8")", R"("")", "1"},
       {R"("float16")", R"("bfloat16")", R"("uint8")"}},
      {"normalize",
       "mean",
       R"("std":[1])",
       "[0]",
       {"[]", R"(["NaN"])", "[1e39]", "[0,0,0,0,0]"},
       {"[1]", "[0,0,0]"}},
      {"normalize",
       "std",
       R"("mean":[0])",
       "[1]",
       {"[]", "[0]", "[1,1e-60]", "[1,1,1,1,1]"},
       {"[2]", "[1,1,1]"}},
      {"pad", "padding", "", "[1]", kBadPadding, {"[2]", "[1,2]", "[1,1,1,2]"}},
      {"pad", "fill", R"("padding":[1])", "", kBadFill, kOtherFill},
      {"pad", "padding_mode", R"("padding":[1])", "", {"5", R"("WRAP")"}, {"2", "3", "4"}},
      {"random_crop", "size", "", "[8]", kBadSize, kOtherSize},
      {"random_crop", "padding", kSize, "", kBadPadding, {"[1]", "[0,2]"}},
      {"random_crop", "pad_if_needed", kSize, "", kBadBool, {"true"}},
      {"random_crop", "fill", kSize, "", kBadFill, kOtherFill},
      {"random_crop", "padding_mode", kSize, "", {"5"}, {"2", "3", "4"}},
      {"random_vertical_flip", "p", "", "", kBadP, kOtherP},
      {"random_rotation", "degrees", "", "[-5,5]", kBadDegrees, {"[-5,6]", "[-6,5]"}},
      {"random_rotation", "interpolation", kDegrees, "", kBadWarp, {"2", "3"}},
      {"random_rotation", "expand", kDegrees, "", kBadBool, {"true"}},
      {"random_rotation", "center", kDegrees, "", kBadCenter, {"[0,0]", "[1,0]"}},
      {"random_rotation", "fill", kDegrees, "", kBadFill, kOtherFill},
      {"random_affine", "degrees", "", "[-5,5]", kBadDegrees, {"[-5,6]", "[-6,5]"}},
      {"random_affine",
       "translate",
       kDegrees,
       "",
       {"[1]", "[0,1.1]", "[-0.1,0]"},
       {"[0,0]", "[0.1,0]", "[0,0.1]"}},
      {"random_affine", "scale", kDegrees, "", kBadRatio, {"[1,1]", "[0.5,1]"}},
      {"random_affine",
       "shear",
       kDegrees,
       "",
       {"[1]", "[1,2,3]", "[2,1]", "[0,1,2,1]"},
       {"[0,0]", "[0,1]", "[0,1,0,0]", "[0,1,0,1]"}},
      {"random_affine", "interpolation", kDegrees, "", kBadWarp, {"2", "3"}},
      {"random_affine", "fill", kDegrees, "", kBadFill, kOtherFill},
      {"random_affine", "center", kDegrees, "", kBadCenter, {"[0,0]", "[1,0]"}},
      {"random_perspective", "distortion_scale", "", "", kBadP, kOtherP},
      {"random_perspective", "p", "", "", kBadP, kOtherP},
      {"random_perspective", "interpolation", "", "", kBadWarp, {"1", "3"}},
      {"random_perspective", "fill", "", "", kBadFill, kOtherFill},
      {"color_jitter", "brightness", "", "", kBadFactor, {"[1,1]", "[0.5,1]"}},
      {"color_jitter", "contrast", "", "", kBadFactor, {"[1,1]", "[0.5,1]"}},
      {"color_jitter", "saturation", "", "", kBadFactor, {"[1,1]", "[0.5,1]"}},
      {"color_jitter",
       "hue",
       "",
       "",
       {"[0]", "[0.1,0]", "[-0.6,0]", "[0,0.6]"},
       {"[0,0]", "[-0.1,0.1]"}},
      {"random_grayscale", "p", "", "", kBadP, kOtherP},
      {"gaussian_blur",
       "kernel_size",
       "",
       "[3]",
       {"[]", "[2]", "[3,4]", "[1025]", "[1,1,1]"},
       {"[5]", "[3,5]"}},
      {"gaussian_blur", "sigma", R"("kernel_size":[3])", "", kBadRatio, {"[1,1]", "[0.1,3]"}},
      {"random_erasing", "p", "", "", kBadP, kOtherP},
      {"random_erasing", "scale", "", "", {"[1]", "[1,0]", "[-1,1]", "[0,1.1]"}, {"[0.1,0.2]"}},
      {"random_erasing", "ratio", "", "", kBadRatio, {"[1,1]"}},
      {"random_erasing",
       "value",
       "",
       "",
       {"[1e39]", R"(["NaN"])", "[0,0,0,0,0]"},
       {"[1]", "[0,0,1]"}},
      {"random_erasing", "random", "", "", kBadBool, {"true"}},
      {"rand_augment", "num_ops", "", "", {"-1", "65"}, {"0", "3"}},
      {"rand_augment", "magnitude", "", "", {"-1", "31"}, {"0", "30"}},
      {"rand_augment", "num_magnitude_bins", "", "", kBadBins, {"30", "32"}},
      {"rand_augment", "interpolation", "", "", kBadWarp, {"2", "3"}},
      {"rand_augment", "fill", "", "", kBadFill, kOtherFill},
      {"trivial_augment_wide", "num_magnitude_bins", "", "", kBadBins, {"30", "2"}},
      {"trivial_augment_wide", "interpolation", "", "", kBadWarp, {"2", "3"}},
      {"trivial_augment_wide", "fill", "", "", kBadFill, kOtherFill},
      {"auto_augment", "policy", "", "", {"4", R"("MINE")"}, {"2", "3"}},
      {"auto_augment", "interpolation", "", "", kBadWarp, {"2", "3"}},
      {"auto_augment", "fill", "", "", kBadFill, kOtherFill},
      {"random_invert", "p", "", "", kBadP, kOtherP},
      {"random_posterize", "bits", "", "4", {"0", "9", "-1"}, {"1", "8"}},
      {"random_posterize", "p", R"("bits":4)", "", kBadP, kOtherP},
      {"random_solarize", "threshold", "", "128", {"1001", "-1001", R"("NaN")"}, {"0", "127.5"}},
      {"random_solarize", "p", R"("threshold":128)", "", kBadP, kOtherP},
      {"random_adjust_sharpness", "sharpness_factor", "", "2", {"-1", "1001"}, {"0", "2.5"}},
      {"random_adjust_sharpness", "p", R"("sharpness_factor":2)", "", kBadP, kOtherP},
      {"random_autocontrast", "p", "", "", kBadP, kOtherP},
      {"random_equalize", "p", "", "", kBadP, kOtherP},
      {"random_apply", "transforms", "", R"([{"random_invert":{}}])", kBadHeld, kOtherHeld},
      {"random_apply", "p", kHeld, "", kBadP, kOtherP},
      {"random_choice",
       "transforms",
       "",
       R"([{"random_invert":{}}])",
       {"[]", kBadHeld[0], kBadHeld[1], kBadHeld[2]},
       kOtherHeld},
      {"random_choice",
       "p",
       kHeld,
       "",
       {"[1,1]", "[0]", "[-1]", "[1000001]", R"(["NaN"])"},
       {"[1]", "[2]"}},
      {"random_order", "transforms", "", R"([{"random_invert":{}}])", kBadHeld, kOtherHeld},
  };
  return fields;
}

const std::vector<Field>& BatchFields() {
  static const std::string kMix = R"([{"mix_up":{"num_classes":9}}])";
  static const std::vector<std::string> kBadAlpha = {"0", "-1", "0.00001", "10001", R"("NaN")"};
  static const std::vector<Field> fields = {
      {"mix_up", "alpha", R"("num_classes":9)", "", kBadAlpha, {"0.2", "2"}},
      {"mix_up", "num_classes", "", "9", {"0", "-1", "1048577"}, {"10"}},
      {"cut_mix", "alpha", R"("num_classes":9)", "", kBadAlpha, {"0.2", "2"}},
      {"cut_mix", "num_classes", "", "9", {"0", "-1", "1048577"}, {"10"}},
      {"random_choice",
       "transforms",
       "",
       kMix,
       {"[]", "[{}]", R"([{"mix_up":{}}])", R"([{"random_choice":{"transforms":[]}}])",
        R"([{"mix_up":{"num_classes":9}},{"cut_mix":{"num_classes":8}}])",
        R"([{"cut_mix":{"num_classes":9,"alpha":-1}}])"},
       {R"([{"cut_mix":{"num_classes":9}}])", R"([{"mix_up":{"num_classes":8}}])",
        R"([{"mix_up":{"num_classes":9,"alpha":2}}])",
        R"([{"mix_up":{"num_classes":9}},{"cut_mix":{"num_classes":9}}])",
        R"([{"cut_mix":{"num_classes":9}},{"mix_up":{"num_classes":9}}])"}},
      {"random_choice",
       "p",
       R"("transforms":)" + kMix,
       "",
       {"[1,1]", "[0]", "[-1]", "[1000001]", R"(["NaN"])"},
       {"[1]", "[2]"}},
  };
  return fields;
}

struct Table {
  const std::vector<Field>* fields;
  std::string path;    // of the step in the job
  std::string before;  // of the step in the job's JSON
  std::string after;
};
const Table kSteps = {&Fields(), "transform[0].", R"("transform":[{)", "}]"};
const Table kBatchSteps = {&BatchFields(), "batch_transform.", R"("batch_transform":{)", "}"};

std::string JobOf(const Table& table, const Field& field, const std::string& value) {
  std::string fields = field.rest;
  if (!value.empty()) {
    absl::StrAppend(&fields, fields.empty() ? "" : ",", "\"", field.name, "\":", value);
  }
  return absl::StrCat(R"({"dataset":{"name":"d"},)", table.before, "\"", field.step, "\":{", fields,
                      "}", table.after, "}");
}

void ExpectRefusals(const Table& table) {
  for (const Field& field : *table.fields) {
    const std::string path = absl::StrCat(table.path, field.step, ".", field.name);
    EXPECT_GE(field.bad.size(), 1u) << path;
    for (const std::string& bad : field.bad) {
      const std::string json = JobOf(table, field, bad);
      const auto job = ParseJobJson(json);
      ASSERT_THAT(job, StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(path))) << json;
      const std::string message(job.status().message());
      EXPECT_THAT(std::string(":[."), testing::HasSubstr(message.substr(path.size(), 1)))
          << message;
    }
  }
}

void ExpectFingerprintsApart(const Table& table) {
  std::map<std::string, std::string> json_of;
  for (const Field& field : *table.fields) {
    std::vector<std::string> values = field.others;
    EXPECT_GE(values.size(), 1u) << field.step << field.name;
    values.push_back(field.base);
    for (const std::string& value : values) {
      const std::string json = JobOf(table, field, value);
      const auto job = ParseJobJson(json);
      ASSERT_THAT(job, IsOk()) << json;
      const auto [it, is_new] = json_of.emplace(job->Fingerprint(), json);
      EXPECT_TRUE(is_new || value == field.base) << json << "\n" << it->second;
    }
  }
  EXPECT_EQ(json_of.count(""), 0u);
}

// Every field that the schema has, so that a new one cannot be left out.
void ExpectAllFields(const Table& table, const google::protobuf::Descriptor& steps) {
  std::set<std::string> wanted;
  for (int i = 0; i < steps.field_count(); ++i) {
    const auto* step = steps.field(i);
    for (int j = 0; j < step->message_type()->field_count(); ++j) {
      wanted.insert(absl::StrCat(step->name(), ".", step->message_type()->field(j)->name()));
    }
  }
  std::set<std::string> found;
  for (const Field& field : *table.fields) found.insert(absl::StrCat(field.step, ".", field.name));
  EXPECT_EQ(found, wanted);
}

TEST(StepFieldsTest, EveryFieldOfTheSchemaIsInTheTables) {
  ExpectAllFields(kSteps, *v1::TransformStep::descriptor());
  ExpectAllFields(kBatchSteps, *v1::BatchStep::descriptor());
}

TEST(StepFieldsTest, ABadValueIsRefusedWithTheFieldsPath) {
  ExpectRefusals(kSteps);
  ExpectRefusals(kBatchSteps);
}

TEST(StepFieldsTest, AnotherValueIsAnotherFingerprint) {
  ExpectFingerprintsApart(kSteps);
  ExpectFingerprintsApart(kBatchSteps);
}

TEST(StepFieldsTest, RequiredFieldsAreAskedFor) {
  for (const auto& [table, step, field] : {std::tuple(&kSteps, "random_rotation", "degrees"),
                                           {&kSteps, "random_affine", "degrees"},
                                           {&kSteps, "pad", "padding"},
                                           {&kSteps, "random_posterize", "bits"},
                                           {&kSteps, "random_solarize", "threshold"},
                                           {&kSteps, "random_adjust_sharpness", "sharpness_factor"},
                                           {&kSteps, "gaussian_blur", "kernel_size"},
                                           {&kBatchSteps, "mix_up", "num_classes"},
                                           {&kBatchSteps, "cut_mix", "num_classes"},
                                           {&kBatchSteps, "random_choice", "transforms"}}) {
    const Field empty = {step, field, "", "", {}, {}};
    EXPECT_THAT(ParseJobJson(JobOf(*table, empty, "")),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         StartsWith(absl::StrCat(table->path, step, ".", field, ": "))));
  }
}

TEST(StepFieldsTest, ABatchStepWithoutATransformNamesThoseThatThereAre) {
  EXPECT_THAT(ParseJobJson(R"({"dataset":{"name":"d"},"batch_transform":{}})"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "batch_transform: names no transform; there are: mix_up, cut_mix, "
                       "random_choice"));
}

TEST(StepFieldsTest, ErasingWithAValueAndAtRandomIsRefused) {
  const Field field = {"random_erasing", "value", R"("random":true)", "", {}, {}};
  EXPECT_THAT(ParseJobJson(JobOf(kSteps, field, "[1]")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "transform[0].random_erasing.value: must not stand beside random"));
}

// Steps that hold `width` steps each, `depth` deep.
std::string Nested(int depth, int width) {
  std::string inner = R"({"random_invert":{}})";
  for (int i = 0; i < depth; ++i) {
    std::string list = inner;
    for (int j = 1; j < width; ++j) absl::StrAppend(&list, ",", inner);
    inner = absl::StrCat(R"({"random_order":{"transforms":[)", list, "]}}");
  }
  return absl::StrCat(R"({"dataset":{"name":"d"},"transform":[)", inner, "]}");
}

TEST(StepFieldsTest, StepsInStepsHaveLimits) {
  EXPECT_THAT(ParseJobJson(Nested(8, 1)), IsOk());
  EXPECT_THAT(ParseJobJson(Nested(9, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::AllOf(StartsWith("transform[0].random_order.transforms[0]."),
                                      testing::HasSubstr("at most 8 deep"))));
  EXPECT_THAT(ParseJobJson(Nested(1, 64)), IsOk());
  EXPECT_THAT(ParseJobJson(Nested(1, 65)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "transform[0].random_order.transforms: must have at most 64 steps, has 65"));
  EXPECT_THAT(ParseJobJson(Nested(2, 31)), IsOk());
  EXPECT_THAT(ParseJobJson(Nested(2, 32)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("a job must have at most 1024 steps in all")));
}

}  // namespace
}  // namespace loaderd::plan
