// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/storage_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <map>

#include "tests/support/status_matchers.h"

namespace loaderd::dataset {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class StorageHealthTest : public testing::Test {
 protected:
  // A read of a sample that fails `failing[sample]` more times.
  Status Read(uint64_t sample, int error = EIO) {
    return health.Read(sample, [&] {
      ++tries[sample];
      return failing[sample]-- > 0 ? FileStatus(error, "/data/x.jpg") : absl::OkStatus();
    });
  }
  static constexpr std::chrono::milliseconds kShort{1};
  StorageHealth health{{.pauses = {kShort, kShort, kShort}, .gone_after = 3, .remembered = 100}};
  std::map<uint64_t, int> failing;
  std::map<uint64_t, int> tries;
};

TEST_F(StorageHealthTest, AnErrorThatPassesIsNotSeen) {
  failing = {{7, 1}, {19, 2}, {31, 3}};
  for (const auto& [sample, error] : std::map<uint64_t, int>{{7, EIO}, {19, ESTALE}, {31, EAGAIN}})
    EXPECT_THAT(Read(sample, error), IsOk());
  EXPECT_EQ(tries[19], 3);
  EXPECT_EQ(health.counts().retries, 6u);
  EXPECT_EQ(health.counts().failures, 0u);
}

TEST_F(StorageHealthTest, AnErrorThatStaysIsToldWithItsNameAndTheTries) {
  failing[23] = 1000;
  const Status status = Read(23);
  EXPECT_TRUE(IsStorageFault(status));
  EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("/data/x.jpg: Input/output error"),
                                       HasSubstr("(EIO), at each of 4 tries")));
  EXPECT_EQ(health.counts().retries, 3u);
  EXPECT_EQ(health.counts().failures, 1u);
}

TEST_F(StorageHealthTest, ABadSampleIsTriedOnceUntilItCanBeReadAgain) {
  failing[23] = 6;
  Read(23).IgnoreError();
  EXPECT_EQ(tries[23], 4);
  for (int epoch = 1; epoch <= 2; ++epoch) EXPECT_FALSE(Read(23).ok());
  EXPECT_EQ(tries[23], 6);
  EXPECT_THAT(Read(23), IsOk());
  failing[23] = 1;
  EXPECT_THAT(Read(23), IsOk());  // tried again as any other
}

TEST_F(StorageHealthTest, WhileAllFailNothingIsTriedTwice) {
  for (uint64_t sample = 0; sample < 50; ++sample) failing[sample] = 1000;
  for (uint64_t sample = 0; sample < 50; ++sample) EXPECT_FALSE(Read(sample).ok());
  EXPECT_EQ(health.counts().retries, 3u * 3);
  EXPECT_THAT(Read(60), IsOk());
  failing[61] = 1;
  EXPECT_THAT(Read(61), IsOk());
}

TEST_F(StorageHealthTest, AFaultOfTheFileIsTriedOnce) {
  failing[1] = 1000;
  for (const int error : {ENOENT, EACCES, ENOTDIR, ELOOP, EISDIR}) {
    const Status status = Read(1, error);
    EXPECT_FALSE(IsStorageFault(status)) << error;
    EXPECT_THAT(MessageOf(status), Not(HasSubstr("tries")));
  }
  EXPECT_EQ(tries[1], 5);
  EXPECT_EQ(health.counts().failures, 0u);
}

}  // namespace
}  // namespace loaderd::dataset
