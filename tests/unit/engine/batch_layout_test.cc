// SPDX-License-Identifier: Apache-2.0
#include "server/engine/batch_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace loaderd::engine {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<const transform::Recipe> Compile(std::vector<Step> steps) {
  RecipeSpec spec;
  spec.steps = std::move(steps);
  auto recipe = transform::Recipe::Compile(spec, {});
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  return *std::move(recipe);
}

TEST(BatchLayoutTest, FieldsAreInTheDatasetsOrderThenIndexAndPad) {
  const auto layout = LayOutBatch(*Compile({step::CenterCrop{.size = {6, 5}}}), 7);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->fields.size(), 4u);
  EXPECT_EQ(layout->fields[0].name, "images");
  EXPECT_THAT(layout->fields[0].shape, ElementsAre(7, 6, 5, 3));
  EXPECT_EQ(layout->fields[1].name, "labels");
  EXPECT_EQ(layout->fields[1].dtype, DType::kInt64);
  EXPECT_EQ(layout->fields[2].name, "index");
  EXPECT_EQ(layout->fields[3].name, "pad");
  EXPECT_EQ(layout->fields[3].dtype, DType::kBool);
  for (const FieldLayout& field : layout->fields) EXPECT_EQ(field.offset % 64, 0u);
  EXPECT_EQ(layout->slot_bytes % 4096, 0u);
  EXPECT_EQ(Describe(layout->fields[0]), "7 x 6 x 5 x 3 uint8");
}

TEST(BatchLayoutTest, AFloatTensorHasChannelsFirst) {
  const auto layout =
      LayOutBatch(*Compile({step::CenterCrop{.size = {6, 5}}, step::ToTensor{}}), 2);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(Describe(layout->fields[0]), "2 x 3 x 6 x 5 float32");
}

TEST(BatchLayoutTest, AnImageDependentSizeIsRefusedWithTheCure) {
  const auto layout = LayOutBatch(*Compile({}), 2);
  EXPECT_EQ(layout.status().message(),
            "transform: the size of a sample depends on the image; end with CenterCrop, "
            "RandomResizedCrop or "
            "Resize((h, w))");
}

class RemoveTest : public ::testing::TestWithParam<std::vector<uint32_t>> {};

TEST_P(RemoveTest, RowsThatAreLeftMoveUpInEveryField) {
  constexpr uint32_t kRows = 6;
  const auto recipe = Compile({step::CenterCrop{.size = {3, 3}}});
  const auto layout = LayOutBatch(*recipe, kRows);
  ASSERT_TRUE(layout.ok());
  std::vector<uint8_t> slot(layout->slot_bytes);
  const SlotRows rows(*layout, slot);
  std::vector<uint32_t> left;
  for (uint32_t row = 0; row < kRows; ++row) {
    std::memset(rows.image(row).data(), static_cast<int>(row + 1), rows.image(row).size());
    rows.Describe(row, row * 10, row * 100, row % 2 == 1);
    if (!std::ranges::count(GetParam(), row)) left.push_back(row);
  }
  rows.Remove(GetParam(), kRows);
  for (uint32_t i = 0; i < left.size(); ++i) {
    EXPECT_THAT(rows.image(i), ::testing::Each(left[i] + 1));
    const auto at = [&](size_t field) {
      return slot.data() + layout->fields[field].offset + i * layout->fields[field].RowBytes();
    };
    int64_t label = 0, index = 0;
    std::memcpy(&label, at(1), 8);
    std::memcpy(&index, at(2), 8);
    EXPECT_EQ(label, left[i] * 10);
    EXPECT_EQ(index, left[i] * 100);
    EXPECT_EQ(*at(3), left[i] % 2);
  }
}

INSTANTIATE_TEST_SUITE_P(AnyRows, RemoveTest,
                         ::testing::Values(std::vector<uint32_t>{}, std::vector<uint32_t>{0},
                                           std::vector<uint32_t>{5}, std::vector<uint32_t>{0, 1},
                                           std::vector<uint32_t>{1, 3, 4},
                                           std::vector<uint32_t>{0, 2, 5},
                                           std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));

}  // namespace
}  // namespace loaderd::engine
