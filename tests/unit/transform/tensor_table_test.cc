// SPDX-License-Identifier: Apache-2.0
#include "server/transform/tensor_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string_view>

#include "tests/unit/transform/answers.h"

namespace loaderd::transform {
namespace {

std::vector<double> Doubles(const google::protobuf::ListValue& list) {
  std::vector<double> values;
  for (const JsonValue& value : list.values()) values.push_back(value.number_value());
  return values;
}

DType FloatNamed(std::string_view name) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  ADD_FAILURE() << name;
  return DType::kFloat32;
}

std::string Describe(const Json& chain) { return chain.ShortDebugString(); }

TensorTable Build(const Json& chain) {
  TensorTable table(3);
  for (const JsonValue& step : List(chain, "steps")) {
    constexpr std::string_view kConvert = "convert ";
    const std::string& name = step.string_value();
    if (step.has_struct_value()) {
      const Status status = table.Normalize(Doubles(At(step.struct_value(), "mean").list_value()),
                                            Doubles(At(step.struct_value(), "std").list_value()));
      EXPECT_TRUE(status.ok()) << status;
    } else if (name.starts_with(kConvert)) {
      table.ToFloat(FloatNamed(name.substr(kConvert.size())));
    } else {
      EXPECT_EQ(name, "to_tensor");
      table.ToFloat(DType::kFloat32);
    }
  }
  return table;
}

// Chains of ToTensor, ConvertImageDtype and Normalize over all 256 values in three channels, as
// torch computes them (made by tests/support/make_fixtures.py, which has the torch code).
TEST(TensorTableTest, EqualsTorchInEveryChainAndDType) {
  const Json answers = ReadJson(Fixtures() / "tensor_tables.json");
  std::vector<uint8_t> ramp;
  for (int v = 0; v < 256; ++v) ramp.insert(ramp.end(), 3, static_cast<uint8_t>(v));
  int compared = 0;
  for (const JsonValue& value : List(answers, "tables")) {
    const Json& chain = value.struct_value();
    SCOPED_TRACE(Describe(chain));
    const TensorTable table = Build(chain);
    const auto& first = List(chain, "first");
    EXPECT_EQ(table.At(0, 0), first[0].number_value());
    EXPECT_EQ(table.At(0, 1), first[1].number_value());
    EXPECT_EQ(table.At(0, 100), first[2].number_value());
    EXPECT_EQ(table.At(0, 255), first[3].number_value());
    std::vector<uint8_t> out(ramp.size() * DTypeBytes(table.dtype()));
    table.Apply(Contiguous(ramp.data(), 1, 256, 3), out.data());
    EXPECT_EQ(HashOf(out), Text(chain, "sha256"));
    ++compared;
  }
  EXPECT_EQ(compared, 92);
}

TEST(TensorTableTest, PutsChannelsFirst) {
  const uint8_t pixels[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  uint8_t out[12];
  TensorTable(3).Apply(Contiguous(pixels, 2, 2, 3), out);
  EXPECT_THAT(out, ::testing::ElementsAre(1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12));
}

TEST(TensorTableTest, WritesToAnyAlignment) {
  const uint8_t pixels[] = {0, 255};
  TensorTable table(1);
  table.ToFloat(DType::kFloat32);
  uint8_t out[9];
  table.Apply(Contiguous(pixels, 1, 2, 1), out + 1);
  float values[2];
  std::memcpy(values, out + 1, sizeof(values));
  EXPECT_THAT(values, ::testing::ElementsAre(0.0F, 1.0F));
}

TEST(TensorTableTest, RefusesAStdThatBecomesZeroInTheDType) {
  TensorTable table(3);
  table.ToFloat(DType::kFloat16);
  const Status status = table.Normalize({0.5}, {0.5, 1e-9, 0.5});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "std[1]: 1e-09 is 0 as float16");
}

// Bits of binary16 from IEEE 754: largest, first past it, smallest normal, largest and smallest
// subnormal, ties.
TEST(TensorTableTest, RoundsToFloat16HalfToEven) {
  const auto half = [](double value) {
    TensorTable table(1);
    table.ToFloat(DType::kFloat32);
    // 0 / 255 - (-value) is value, exactly.
    EXPECT_TRUE(table.Normalize({-value}, {1.0}).ok());
    table.ToFloat(DType::kFloat16);
    return table.At(0, 0);
  };
  EXPECT_EQ(half(65504), 0x7BFFu);
  EXPECT_EQ(half(65519), 0x7BFFu);
  EXPECT_EQ(half(65520), 0x7C00u);
  EXPECT_EQ(half(-1e9), 0xFC00u);
  EXPECT_EQ(half(0x1p-14), 0x0400u);
  EXPECT_EQ(half(0x1p-14 - 0x1p-24), 0x03FFu);
  EXPECT_EQ(half(0x1p-14 - 0x1p-26), 0x0400u);
  EXPECT_EQ(half(0x1p-24), 0x0001u);
  EXPECT_EQ(half(0x1p-25), 0x0000u);
  EXPECT_EQ(half(0x1.8p-24), 0x0002u);
  EXPECT_EQ(half(1 + 0x1p-11), 0x3C00u);
  EXPECT_EQ(half(1 + 0x3p-11), 0x3C02u);
  EXPECT_EQ(half(-1 - 0x1p-10), 0xBC01u);
}

}  // namespace
}  // namespace loaderd::transform
