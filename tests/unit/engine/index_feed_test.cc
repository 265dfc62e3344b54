// SPDX-License-Identifier: Apache-2.0
#include "server/engine/index_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace loaderd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<uint64_t> Take(IndexFeed& feed) {
  std::vector<plan::PlannedSample> samples;
  std::vector<uint64_t> indices;
  if (feed.TakeBatch(samples)) {
    for (const auto& sample : samples) indices.push_back(sample.index);
  }
  return indices;
}

Status Add(IndexFeed& feed, uint64_t batch, std::vector<int64_t> indices, bool last = true,
           bool end = false) {
  return feed.Add(1, batch, indices, last, end);
}

void ExpectRefused(const Status& status, const char* why) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

class IndexFeedTest : public ::testing::Test {
 protected:
  IndexFeedTest() { feed.Restart(1, 10); }
  IndexFeed feed{100, 3};
};

TEST_F(IndexFeedTest, NothingIsTakenBeforeTheBatchIsWhole) {
  ASSERT_TRUE(Add(feed, 10, {1}, false).ok());
  EXPECT_TRUE(Take(feed).empty());
  ASSERT_TRUE(Add(feed, 10, {2}).ok());
  EXPECT_THAT(Take(feed), ElementsAre(1, 2));
  EXPECT_TRUE(Take(feed).empty());
}

TEST_F(IndexFeedTest, LastAloneEndsABatchThatHasBegun) {
  ASSERT_TRUE(Add(feed, 10, {1}, false).ok());
  ASSERT_TRUE(Add(feed, 10, {}).ok());
  EXPECT_THAT(Take(feed), ElementsAre(1));
}

TEST_F(IndexFeedTest, BatchesOutOfOrderAreRefused) {
  ExpectRefused(Add(feed, 11, {1}), "indices of batch 11: batch 10 is expected next");
  ASSERT_TRUE(Add(feed, 10, {1}).ok());
  ExpectRefused(Add(feed, 10, {1}), "batch 11 is expected next");
}

TEST_F(IndexFeedTest, ABatchOverItsSizeIsRefusedAndChangesNothing) {
  ASSERT_TRUE(Add(feed, 10, {1, 2}, false).ok());
  ExpectRefused(Add(feed, 10, {3, 4}), "4 indices are more than batch_size 3");
  ASSERT_TRUE(Add(feed, 10, {5}).ok());
  EXPECT_THAT(Take(feed), ElementsAre(1, 2, 5));
}

TEST_F(IndexFeedTest, AnEmptyBatchIsRefusedExceptAtTheEnd) {
  ExpectRefused(Add(feed, 10, {}), "a batch needs one index at least");
  EXPECT_TRUE(Add(feed, 10, {}, true, true).ok());
  EXPECT_EQ(feed.end(), 10u);
}

TEST_F(IndexFeedTest, TheEndCountsTheBatchThatCameWithIt) {
  EXPECT_FALSE(feed.end().has_value());
  ASSERT_TRUE(Add(feed, 10, {1}, false, true).ok());
  EXPECT_EQ(feed.end(), 11u);
  EXPECT_THAT(Take(feed), ElementsAre(1));
  ExpectRefused(Add(feed, 11, {1}), "after the end");
}

TEST_F(IndexFeedTest, IndicesBeforeOrOfALaterStartAreRefused) {
  IndexFeed fresh(100, 3);
  ExpectRefused(Add(fresh, 0, {1}), "has not been started");
  ExpectRefused(feed.Add(2, 10, {}, false, true), "has not been started");
  EXPECT_TRUE(feed.Add(0, 77, std::vector<int64_t>{-5}, true, false).ok());
}

TEST_F(IndexFeedTest, RestartForgetsEverything) {
  ASSERT_TRUE(Add(feed, 10, {1}).ok());
  ASSERT_TRUE(Add(feed, 11, {1}, false).ok());
  ASSERT_TRUE(Add(feed, 11, {1}, false, true).ok());
  feed.Restart(2, 0);
  EXPECT_TRUE(Take(feed).empty());
  EXPECT_FALSE(feed.end().has_value());
  ASSERT_TRUE(feed.Add(2, 0, std::vector<int64_t>{4}, true, false).ok());
  EXPECT_THAT(Take(feed), ElementsAre(4));
}

TEST(IndexFeedLimitTest, AMillionIndicesMayBeAheadAndNoMore) {
  constexpr uint32_t kBatch = 1 << 16;
  IndexFeed feed(10, kBatch);
  feed.Restart(1, 0);
  const std::vector<int64_t> batch(kBatch, 3);
  for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(Add(feed, i, batch).ok());
  ExpectRefused(Add(feed, 16, {1}), "more than 1048576 indices are ahead");
  EXPECT_EQ(Take(feed).size(), kBatch);
  EXPECT_TRUE(Add(feed, 16, batch).ok());
}

}  // namespace
}  // namespace loaderd::engine
