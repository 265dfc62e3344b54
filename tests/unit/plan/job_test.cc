// SPDX-License-Identifier: Apache-2.0
#include "server/plan/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "loaderd/v1/job.pb.h"
#include "tests/support/status_matchers.h"

namespace loaderd::plan {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A job with `fields` beside its dataset.
std::string JobWith(const std::string& fields) {
  return R"({"dataset":{"image_folder":{"path":"/data"}})" + (fields.empty() ? "" : "," + fields) +
         "}";
}
std::string StepsJob(const std::string& steps) { return JobWith(R"("transform":[)" + steps + "]"); }
std::string DatasetJob(const std::string& dataset) { return R"({"dataset":)" + dataset + "}"; }

std::string Repeated(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(ParseJobTest, LeftOutFieldsTakeTheirDefaults) {
  ASSERT_OK_AND_ASSIGN(const Job job, ParseJobJson(JobWith("")));
  EXPECT_EQ(job.dataset.image_folder, "/data");
  EXPECT_EQ(job.dataset.name, "");
  EXPECT_EQ(job.recipe.mode, ImageMode::kRgb);
  EXPECT_EQ(job.recipe.reference, Reference::kPillow13);
  EXPECT_TRUE(job.recipe.steps.empty());
  EXPECT_EQ(job.order.kind, OrderKind::kSequential);
  EXPECT_EQ(job.order.rank, 0u);
  EXPECT_EQ(job.order.world_size, 1u);
  EXPECT_EQ(job.order.shard, ShardRule::kPad);
  EXPECT_EQ(job.batch_size, 1u);
  EXPECT_FALSE(job.drop_last);
  EXPECT_EQ(job.prefetch_factor, 2u);
  EXPECT_EQ(job.on_bad_sample, BadSamplePolicy::kFail);
}

TEST(ParseJobTest, ReadsEveryField) {
  ASSERT_OK_AND_ASSIGN(const Job job, ParseJobJson(R"({
      "dataset": {"image_folder": {"path": "/d", "mode": "IMAGE_MODE_L"}},
      "order": {"kind": "ORDER_KIND_TORCH_SHUFFLE", "seed": 18446744073709551615, "rank": 3, "world_size": 4,
                "shard": "SHARD_RULE_UNEVEN"},
      "batch_size": 65536, "drop_last": true, "prefetch_factor": 1024,
      "on_bad_sample": "BAD_SAMPLE_POLICY_SUBSTITUTE", "reference": "REFERENCE_PILLOW12"})"));
  EXPECT_EQ(job.recipe.mode, ImageMode::kL);
  EXPECT_EQ(job.recipe.reference, Reference::kPillow12);
  EXPECT_EQ(job.order.kind, OrderKind::kTorchShuffle);
  EXPECT_EQ(job.order.seed, UINT64_MAX);
  EXPECT_EQ(job.order.rank, 3u);
  EXPECT_EQ(job.order.world_size, 4u);
  EXPECT_EQ(job.order.shard, ShardRule::kUneven);
  EXPECT_EQ(job.batch_size, 65536u);
  EXPECT_TRUE(job.drop_last);
  EXPECT_EQ(job.prefetch_factor, 1024u);
  EXPECT_EQ(job.on_bad_sample, BadSamplePolicy::kSubstitute);
}

TEST(ParseJobTest, ReadsEveryTransformWithTorchvisionsDefaults) {
  ASSERT_OK_AND_ASSIGN(const Job job, ParseJobJson(StepsJob(R"(
      {"resize": {"size": [256], "max_size": 300, "interpolation": "INTERPOLATION_LANCZOS"}},
      {"resize": {"size": [20, 30]}},
      {"center_crop": {"size": [224]}},
      {"random_resized_crop": {"size": [224, 100]}},
      {"random_resized_crop": {"size": [8], "scale": [0.5, 1], "ratio": [1, 2], "interpolation": "INTERPOLATION_BICUBIC"}},
      {"random_horizontal_flip": {}}, {"random_horizontal_flip": {"p": 0}},
      {"grayscale": {}}, {"grayscale": {"num_output_channels": 3}},
      {"pil_to_tensor": {}}, {"to_tensor": {}}, {"convert_image_dtype": {"dtype": "bfloat16"}},
      {"normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229]}})")));
  const std::vector<Step>& steps = job.recipe.steps;
  ASSERT_EQ(steps.size(), 13u);
  const auto& edge = std::get<step::Resize>(steps[0]);
  EXPECT_EQ(std::get<int>(edge.size), 256);
  EXPECT_EQ(edge.max_size, 300);
  EXPECT_EQ(edge.filter, Filter::kLanczos);
  const auto& both = std::get<step::Resize>(steps[1]);
  EXPECT_EQ(std::get<Size>(both.size), (Size{.height = 20, .width = 30}));
  EXPECT_EQ(both.max_size, std::nullopt);
  EXPECT_EQ(both.filter, Filter::kBilinear);
  EXPECT_EQ(std::get<step::CenterCrop>(steps[2]).size, (Size{224, 224}));
  const auto& crop = std::get<step::RandomResizedCrop>(steps[3]);
  EXPECT_EQ(crop.size, (Size{.height = 224, .width = 100}));
  EXPECT_THAT(crop.scale, ElementsAre(0.08, 1.0));
  EXPECT_THAT(crop.ratio, ElementsAre(3.0 / 4.0, 4.0 / 3.0));
  EXPECT_THAT(std::get<step::RandomResizedCrop>(steps[4]).scale, ElementsAre(0.5, 1.0));
  EXPECT_THAT(std::get<step::RandomResizedCrop>(steps[4]).ratio, ElementsAre(1.0, 2.0));
  EXPECT_EQ(std::get<step::RandomResizedCrop>(steps[4]).filter, Filter::kBicubic);
  EXPECT_EQ(std::get<step::RandomHorizontalFlip>(steps[5]).p, 0.5);
  EXPECT_EQ(std::get<step::RandomHorizontalFlip>(steps[6]).p, 0.0);
  EXPECT_EQ(std::get<step::Grayscale>(steps[7]).channels, 1);
  EXPECT_EQ(std::get<step::Grayscale>(steps[8]).channels, 3);
  EXPECT_TRUE(std::holds_alternative<step::PilToTensor>(steps[9]));
  EXPECT_TRUE(std::holds_alternative<step::ToTensor>(steps[10]));
  EXPECT_EQ(std::get<step::ConvertImageDtype>(steps[11]).dtype, DType::kBfloat16);
  EXPECT_THAT(std::get<step::Normalize>(steps[12]).mean, ElementsAre(0.485, 0.456, 0.406));
  EXPECT_THAT(std::get<step::Normalize>(steps[12]).std, ElementsAre(0.229));
}

struct Refusal {
  std::string json;
  std::string begins;  // the message's begin
};

// In test names: the letters alone, as CMake's lists want it.
void PrintTo(const Refusal& refusal, std::ostream* out) {
  std::string letters = refusal.begins;
  std::erase_if(letters, [](unsigned char c) { return std::isalnum(c) == 0 && c != ' '; });
  *out << letters;
}

class ParseJobRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(ParseJobRefusalTest, NamesTheFieldAndTheFault) {
  EXPECT_THAT(ParseJobJson(GetParam().json), StatusIs(kInvalid, StartsWith(GetParam().begins)))
      << GetParam().json;
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ParseJobRefusalTest,
    testing::Values(
        Refusal{"{}", "dataset: is required: one of image_folder, name"},
        Refusal{DatasetJob("{}"), "dataset: is required"},
        Refusal{DatasetJob(R"({"image_folder":{}})"),
                "dataset.image_folder.path: must have 1 to 4095 bytes, has 0"},
        Refusal{DatasetJob(R"({"image_folder":{"path":"data"}})"),
                "dataset.image_folder.path: must be absolute, is \"data\""},
        Refusal{DatasetJob(R"({"image_folder":{"path":"/a\u0000b"}})"),
                "dataset.image_folder.path: must not hold a NUL"},
        Refusal{DatasetJob(R"({"image_folder":{"path":"/)" + std::string(4095, 'a') + R"("}})"),
                "dataset.image_folder.path: must have 1 to 4095 bytes, has 4096"},
        Refusal{DatasetJob(R"({"image_folder":{"path":"/a","path_bytes":"L2E="}})"),
                "dataset.image_folder.path_bytes: must not stand beside path"},
        Refusal{DatasetJob(R"({"image_folder":{"path":"/a","mode":7}})"),
                "dataset.image_folder.mode: must be one of IMAGE_MODE_RGB, IMAGE_MODE_L, is 7"},
        Refusal{DatasetJob(R"({"name":"a/b"})"),
                "dataset.name: must be 1 to 64 of [A-Za-z0-9._-], is \"a/b\""},
        Refusal{DatasetJob(R"({"name":""})"), "dataset.name: must be 1 to 64"},
        Refusal{JobWith(R"("batch_size":0)"), "batch_size: must be 1 to 65536, is 0"},
        Refusal{JobWith(R"("batch_size":-1)"), "batch_size: must be 1 to 65536, is -1"},
        Refusal{JobWith(R"("batch_size":10000000)"), "batch_size: must be 1 to 65536, is 10000000"},
        Refusal{JobWith(R"("prefetch_factor":0)"), "prefetch_factor: must be 1 to 1024, is 0"},
        Refusal{JobWith(R"("prefetch_factor":1025)"),
                "prefetch_factor: must be 1 to 1024, is 1025"},
        Refusal{JobWith(R"("on_bad_sample":9)"),
                "on_bad_sample: must be one of BAD_SAMPLE_POLICY_FAIL"},
        Refusal{JobWith(R"("reference":9)"), "reference: must be one of REFERENCE_PILLOW13"},
        Refusal{JobWith(R"("fidelity":9)"), "fidelity: must be one of FIDELITY_EXACT"},
        Refusal{JobWith(R"("order":{"world_size":0})"),
                "order.world_size: must be 1 to 65536, is 0"},
        Refusal{JobWith(R"("order":{"world_size":65537})"),
                "order.world_size: must be 1 to 65536, is 65537"},
        Refusal{JobWith(R"("order":{"rank":1})"), "order.rank: must be 0 to 0, is 1"},
        Refusal{JobWith(R"("order":{"rank":-1,"world_size":4})"),
                "order.rank: must be 0 to 3, is -1"},
        Refusal{JobWith(R"("order":{"kind":77})"),
                "order.kind: must be one of ORDER_KIND_SEQUENTIAL, "},
        Refusal{JobWith(R"("order":{"shard":-5})"), "order.shard: must be one of SHARD_RULE_PAD, "},
        Refusal{JobWith(R"("order":{"kind":"ORDER_KIND_EXPLICIT","world_size":2})"),
                "order.world_size: must be 1 with ORDER_KIND_EXPLICIT, is 2"},
        Refusal{StepsJob(Repeated(R"({"to_tensor":{}},)", 64) + R"({"to_tensor":{}})"),
                "transform: must have at most 64 steps, has 65"}));

INSTANTIATE_TEST_SUITE_P(
    Steps, ParseJobRefusalTest,
    testing::Values(
        Refusal{StepsJob("{}"),
                "transform[0]: names no transform; there are: resize, center_crop, "},
        Refusal{StepsJob(R"({"resize":null})"), "transform[0]: names no transform"},
        Refusal{StepsJob(R"({"resize":{}})"),
                "transform[0].resize.size: must be [edge] or [height, width], has 0 numbers"},
        Refusal{StepsJob(R"({"resize":{"size":[1,2,3]}})"),
                "transform[0].resize.size: must be [edge]"},
        Refusal{StepsJob(R"({"resize":{"size":[0]}})"),
                "transform[0].resize.size[0]: must be 1 to 65535, is 0"},
        Refusal{StepsJob(R"({"resize":{"size":[1,65536]}})"),
                "transform[0].resize.size[1]: must be 1 to 65535, is 65536"},
        Refusal{StepsJob(R"({"resize":{"size":[9],"interpolation":70}})"),
                "transform[0].resize.interpolation: must be one"},
        Refusal{StepsJob(R"({"resize":{"size":[9],"max_size":9}})"),
                "transform[0].resize.max_size: must be greater than size, which is 9, is 9"},
        Refusal{StepsJob(R"({"resize":{"size":[9],"max_size":0}})"),
                "transform[0].resize.max_size: must be 1 to 65535"},
        Refusal{StepsJob(R"({"resize":{"size":[9,9],"max_size":20}})"),
                "transform[0].resize.max_size: goes only with"},
        Refusal{StepsJob(R"({"center_crop":{"size":[0]}})"),
                "transform[0].center_crop.size[0]: must be 1 to 65535, is 0"},
        Refusal{StepsJob(R"({"to_tensor":{}},{"random_resized_crop":{"size":[224,-1]}})"),
                "transform[1].random_resized_crop.size[1]: must be 1 to 65535, is -1"},
        Refusal{StepsJob(R"({"random_resized_crop":{"size":[9],"scale":[1]}})"),
                "transform[0].random_resized_crop.scale: must be [min, max], has 1 numbers"},
        Refusal{StepsJob(R"({"random_resized_crop":{"size":[9],"scale":[1,0.5]}})"),
                "transform[0].random_resized_crop.scale: min must be at most max, is [1, 0.5]"},
        Refusal{StepsJob(R"({"random_resized_crop":{"size":[9],"scale":[0,0]}})"),
                "transform[0].random_resized_crop.scale[1]: must be greater than 0"},
        Refusal{StepsJob(R"({"random_resized_crop":{"size":[9],"scale":["NaN",1]}})"),
                "transform[0].random_resized_crop.scale[0]: must be finite, is nan"},
        Refusal{StepsJob(R"({"random_resized_crop":{"size":[9],"ratio":[0,1]}})"),
                "transform[0].random_resized_crop.ratio[0]: must be 0.0001 to 10000, is 0"},
        Refusal{StepsJob(R"({"random_horizontal_flip":{"p":1.5}})"),
                "transform[0].random_horizontal_flip.p: must be 0 to 1, is 1.5"},
        Refusal{StepsJob(R"({"random_horizontal_flip":{"p":"-Infinity"}})"),
                "transform[0].random_horizontal_flip.p: must be finite, is -inf"},
        Refusal{StepsJob(R"({"grayscale":{"num_output_channels":0}})"),
                "transform[0].grayscale.num_output_channels: must be 1 or 3, is 0"},
        Refusal{StepsJob(R"({"convert_image_dtype":{}})"),
                "transform[0].convert_image_dtype.dtype: must be one of uint8, float32, float16, "
                "bfloat16, is \"\""},
        Refusal{
            StepsJob(
                R"({"to_tensor":{}},{"to_tensor":{}},{"normalize":{"mean":["NaN"],"std":[1]}})"),
            "transform[2].normalize.mean[0]: must be finite, is nan"},
        Refusal{StepsJob(R"({"normalize":{"mean":[0],"std":[1,0]}})"),
                "transform[0].normalize.std[1]: must not be 0"},
        Refusal{StepsJob(R"({"normalize":{"mean":[0],"std":[1e-60]}})"),
                "transform[0].normalize.std[0]: must not be 0"},
        Refusal{StepsJob(R"({"normalize":{"mean":[1e39],"std":[1]}})"),
                "transform[0].normalize.mean[0]: must be -3.4"},
        Refusal{StepsJob(R"({"normalize":{"mean":[],"std":[1]}})"),
                "transform[0].normalize.mean: must have one number"},
        Refusal{StepsJob(R"({"normalize":{"mean":[0,0,0,0,0],"std":[1]}})"),
                "transform[0].normalize.mean: must have"}));

INSTANTIATE_TEST_SUITE_P(
    Json, ParseJobRefusalTest,
    testing::Values(
        Refusal{R"({"transform":[{"gaussian_blurr":{}}]})",
                "transform[0].gaussian_blurr: no such transform; there are: resize, center_crop, "
                "random_resized_crop, "},
        Refusal{R"({"batchsize":1})",
                "batchsize: no such field; there are: dataset, transform, order, batch_size, "},
        Refusal{
            R"({"transform":[{"resize":{"sise":[1]}}]})",
            "transform[0].resize.sise: no such field; there are: size, interpolation, max_size"},
        Refusal{R"({"transform":[{"toTensor":{"x":1}}]})",
                "transform[0].to_tensor.x: no such field; it takes none"},
        Refusal{R"({"order":{"worldSize":"many"}})",
                "order.world_size: must be an integer, is \"many\""},
        Refusal{R"({"batch_size":1.5})", "batch_size: must be an integer, is 1.5"},
        Refusal{R"({"batch_size":1e30})", "batch_size: must be an integer, is 1e+30"},
        Refusal{R"({"order":{"seed":-1}})",
                "order.seed: must be an integer, 0 to 18446744073709551615, is -1"},
        Refusal{R"({"order":{"kind":"RANDOM"}})",
                "order.kind: must be one of ORDER_KIND_SEQUENTIAL, "},
        Refusal{R"({"order":5})",
                "order: must be an object with the fields of OrderSpec (kind, seed, "},
        Refusal{R"({"dataset":{"image_folder":{"path":1}}})",
                "dataset.image_folder.path: must be a string, is 1"},
        Refusal{R"({"dataset":{"image_folder":{"path_bytes":"!!"}}})",
                "dataset.image_folder.path_bytes: must be a string in base64"},
        Refusal{R"({"transform":[{"normalize":{"mean":["x"]}}]})",
                "transform[0].normalize.mean[0]: must be a number, is \"x\""},
        Refusal{R"({"dataset":{"name":"a","image_folder":{}}})",
                "dataset.image_folder: given twice, or together with"},
        Refusal{R"({"batch_size":1,"batch_size":2})", "batch_size: given twice"},
        Refusal{"[]", "job: must be a JSON object of JobSpec"},
        Refusal{"5", "job: must be a JSON object"}, Refusal{"", "job: is not JSON: "},
        Refusal{"{", "job: is not JSON: "},
        Refusal{"nope", "job: is not JSON: Unexpected token. Near: nope"},
        Refusal{R"({"batch_size":1} x)", "job: is not JSON: "},
        Refusal{"{\"dataset\":{\"name\":\"\xff\"}}", "job: is not JSON"},
        Refusal{R"({"transform":[{"normalize":{"mean":[1e400]}}]})",
                "job: is not JSON: Number exceeds the range of double"},
        Refusal{std::string((1 << 20) + 1, ' '),
                "job: its JSON must have at most 1048576 bytes, has 1048577"}));

TEST(ParseJobJsonTest, DeepNestingIsRefusedWithoutHarm) {
  for (const size_t depth : {10, 101, 1000, 50'000}) {
    for (const auto& [open, close] :
         {std::pair("[", "]"), std::pair(R"({"dataset":)", "}"), std::pair(R"([{"a":)", "}]")}) {
      for (const char* field :
           {R"("transform":)", R"("batch_size":)", R"("bogus":)", R"("order":)"}) {
        const std::string json =
            std::string("{") + field + Repeated(open, depth) + "1" + Repeated(close, depth) + "}";
        EXPECT_THAT(ParseJobJson(json), StatusIs(kInvalid)) << field << open << depth;
      }
    }
  }
}

TEST(ParseJobJsonTest, MessagesArePrintableAndBounded) {
  const auto long_name = ParseJobJson(R"({")" + std::string(100'000, 'a') + R"(":1})");
  EXPECT_THAT(long_name, StatusIs(kInvalid));
  EXPECT_LT(long_name.status().message().size(), 2000u);
  EXPECT_THAT(ParseJobJson("{\"a\\nb\\u001b\":1}"), StatusIs(kInvalid, Not(HasSubstr("\n"))));
  const auto long_value =
      ParseJobJson(JobWith(R"("batch_size":")" + std::string(100'000, 'a') + "\""));
  EXPECT_THAT(long_value, StatusIs(kInvalid, StartsWith("batch_size: must be an integer")));
  EXPECT_LT(long_value.status().message().size(), 2000u);
}

TEST(ParseJobJsonTest, TakesBothSpellingsOfNamesAndNumbersAsText) {
  ASSERT_OK_AND_ASSIGN(
      const Job job,
      ParseJobJson(JobWith(R"("batchSize":"7","order":{"worldSize":3,"rank":"2"})")));
  EXPECT_EQ(job.batch_size, 7u);
  EXPECT_EQ(job.order.rank, 2u);
}

TEST(ParseJobJsonTest, PathBytesNeedNotBeUtf8) {
  ASSERT_OK_AND_ASSIGN(const DatasetSpec spec,
                       ParseDatasetJson(R"({"image_folder":{"path_bytes":"L/8="}})"));
  EXPECT_EQ(spec.image_folder, "/\xff");
  EXPECT_THAT(
      ParseDatasetJson(R"({"image_folder":{"path_bytes":"/w=="}})"),
      StatusIs(kInvalid, "dataset.image_folder.path_bytes: must be absolute, is \"\\xff\""));
}

TEST(ParseDatasetTest, ErrorsHaveTheSamePathsAsInAJob) {
  EXPECT_THAT(
      ParseDatasetJson(R"({"image_folder":{"pat":"/a"}})"),
      StatusIs(kInvalid, StartsWith("dataset.image_folder.pat: no such field; there are: path, ")));
  EXPECT_THAT(ParseDatasetJson("x"), StatusIs(kInvalid, StartsWith("dataset: is not JSON")));
  EXPECT_THAT(ParseDatasetJson(R"({"name":"imagenet.train-1k_v2"})"), IsOk());
}

TEST(ParseJobTest, AMessageWithUnknownFieldsIsRefused) {
  v1::JobSpec spec;
  spec.mutable_dataset()->set_name("a");
  spec.add_transform()->mutable_to_tensor();
  EXPECT_THAT(ParseJob(spec), IsOk());
  v1::JobSpec newer = spec;
  ASSERT_TRUE(newer.add_transform()->ParseFromString(
      std::string("\xa2\x06\x00", 3)));  // field 100, empty message
  EXPECT_THAT(ParseJob(newer),
              StatusIs(kInvalid, AllOf(StartsWith("transform[1]: field number 100 is not known"),
                                       HasSubstr("random_horizontal_flip"))));
  ASSERT_TRUE(
      spec.mutable_order()->MergeFromString(std::string("\xa0\x06\x01", 3)));  // field 100, varint
  EXPECT_THAT(ParseJob(spec), StatusIs(kInvalid, StartsWith("order: field number 100")));
}

TEST(ParseJobTest, FolderRulesAreRead) {
  const auto job = ParseJobJson(DatasetJob(
      R"({"image_folder":{"path":"/d","hidden":"HIDDEN_RULE_SKIP","class_to_idx":[
          {"name":"cat","number":"3"},{"name_bytes":"/w=="}]}})"));
  ASSERT_THAT(job, IsOk());
  EXPECT_EQ(job->dataset.hidden, HiddenRule::kSkip);
  const std::vector<std::pair<std::string, int64_t>> numbers = {{"cat", 3}, {"\xff", 0}};
  EXPECT_EQ(job->dataset.class_to_idx, numbers);
  EXPECT_THAT(
      ParseJobJson(DatasetJob(R"({"image_folder":{"path":"/d","class_to_idx":[{"number":1}]}})")),
      StatusIs(kInvalid, StartsWith("dataset.image_folder.class_to_idx[0]: must have either")));
  EXPECT_THAT(ParseJobJson(DatasetJob(R"({"image_folder":{"path":"/d","hidden":9}})")),
              StatusIs(kInvalid, StartsWith("dataset.image_folder.hidden")));
}

TEST(FingerprintTest, DependsOnAllThatIsDeliveredAndOnNothingElse) {
  const std::string steps =
      R"("transform":[{"resize":{"size":[8]}},{"normalize":{"mean":[0.5],"std":[0.5]}}])";
  const auto of = [](const std::string& json) {
    const auto job = ParseJobJson(json);
    EXPECT_THAT(job, IsOk());
    return job.ok() ? job->Fingerprint() : "";
  };
  const std::string base = of(JobWith(steps));
  EXPECT_EQ(base.size(), 64u);
  EXPECT_EQ(base, of(JobWith(steps)));
  EXPECT_EQ(base, of(JobWith(steps + R"(,"prefetch_factor":9)")));
  EXPECT_EQ(base,
            of(JobWith(steps + R"(,"batch_size":1,"order":{"world_size":1},"on_bad_sample":1)")));
  std::vector<std::string> all = {base};
  for (const char* field : {R"("batch_size":2)", R"("drop_last":true)", R"("reference":2)",
                            R"("fidelity":2)", R"("on_bad_sample":2)", R"("order":{"seed":1})",
                            R"("order":{"kind":2})", R"("order":{"world_size":2})",
                            R"("order":{"world_size":2,"rank":1})", R"("order":{"shard":2})"}) {
    all.push_back(of(JobWith(steps + "," + field)));
  }
  for (const char* other :
       {R"({"resize":{"size":[8]}})", R"({"resize":{"size":[8,8]}})",
        R"({"resize":{"size":[8],"max_size":9}})", R"({"resize":{"size":[8],"interpolation":1}})",
        R"({"center_crop":{"size":[8]}})", R"({"to_tensor":{}})", R"({"pil_to_tensor":{}})",
        R"({"normalize":{"mean":[0.5],"std":[0.25]}})",
        R"({"normalize":{"mean":[0.25],"std":[0.5]}})",
        R"({"normalize":{"mean":[0.5,0.5],"std":[0.5]}})",
        R"({"random_horizontal_flip":{"p":0.25}})", R"({"grayscale":{}})",
        R"({"grayscale":{"num_output_channels":3}})",
        R"({"convert_image_dtype":{"dtype":"float16"}})", R"({"random_resized_crop":{"size":[8]}})",
        R"({"random_resized_crop":{"size":[8],"scale":[0.5,1]}})",
        R"({"random_resized_crop":{"size":[8],"ratio":[0.5,1]}})"}) {
    all.push_back(of(StepsJob(other)));
  }
  all.push_back(of(DatasetJob(R"({"image_folder":{"path":"/data"}})")));
  all.push_back(of(DatasetJob(R"({"image_folder":{"path":"/data","mode":2}})")));
  all.push_back(of(DatasetJob(R"({"image_folder":{"path":"/data","exif_transpose":true}})")));
  all.push_back(of(DatasetJob(R"({"image_folder":{"path":"/data","wide":"WIDE_MODE_CLIP"}})")));
  all.push_back(of(DatasetJob(R"({"image_folder":{"path":"/data2"}})")));
  all.push_back(of(DatasetJob(R"({"image_folder":{"path":"/data","hidden":2}})")));
  for (const char* number : {R"({"name":"a"})", R"({"name":"b"})", R"({"name":"a","number":1})"}) {
    all.push_back(of(DatasetJob(R"({"image_folder":{"path":"/data","class_to_idx":[)" +
                                std::string(number) + "]}}")));
  }
  all.push_back(of(DatasetJob(R"({"name":"data"})")));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

}  // namespace
}  // namespace loaderd::plan
