// SPDX-License-Identifier: Apache-2.0
#include "server/plan/torch_shuffle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace loaderd::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The expected orders are what torch 2.13 printed.
TEST(TorchRandpermTest, EqualsTorchForSmallN) {
  EXPECT_THAT(TorchRandperm(0, 3), IsEmpty());
  EXPECT_THAT(TorchRandperm(1, 0), ElementsAre(0));
  EXPECT_THAT(TorchRandperm(5, 0), ElementsAre(4, 0, 1, 3, 2));
  EXPECT_THAT(TorchRandperm(10, 3), ElementsAre(6, 0, 3, 7, 8, 5, 1, 9, 2, 4));
}

TEST(TorchRandpermTest, UsesTheLow32BitsOfTheSeed) {
  EXPECT_EQ(TorchRandperm(10, (1ull << 32) + 3), TorchRandperm(10, 3));
  EXPECT_THAT(TorchRandperm(12, 1ull << 63), ElementsAre(8, 0, 5, 9, 7, 4, 2, 10, 3, 1, 11, 6));
  EXPECT_THAT(TorchRandperm(16, UINT64_MAX),
              ElementsAre(3, 4, 1, 8, 2, 14, 0, 10, 9, 13, 11, 6, 5, 15, 7, 12));
}

TEST(TorchRandpermTest, WideDrawsFillFromTheInsideOutWithTwoWordsADraw) {
  EXPECT_THAT(TorchRandpermWide(1, 0), ElementsAre(0));
  EXPECT_THAT(TorchRandpermWide(10, 7), ElementsAre(1, 8, 7, 3, 4, 5, 9, 6, 2, 0));
  EXPECT_THAT(TorchRandpermWide(16, 42),
              ElementsAre(15, 12, 5, 11, 10, 13, 3, 1, 9, 4, 7, 14, 0, 2, 8, 6));
}

TEST(TorchRandpermTest, HoldsEachIndexOnce) {
  std::vector<uint32_t> order = TorchRandperm(100'003, 42);
  std::sort(order.begin(), order.end());
  for (uint32_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i);
}

}  // namespace
}  // namespace loaderd::plan
