// SPDX-License-Identifier: Apache-2.0
#include "server/base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

namespace loaderd {
namespace {

int OpenNull() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(UniqueFdTest, ClosesWhatItOwnsAtItsEnd) {
  const int fd = OpenNull();
  {
    const UniqueFd owner(fd);
    EXPECT_TRUE(owner.ok());
    EXPECT_EQ(owner.get(), fd);
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(UniqueFdTest, OwnsNothingByDefault) {
  UniqueFd none;
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(none.get(), -1);
  none.reset();
  EXPECT_EQ(none.release(), -1);
}

TEST(UniqueFdTest, ReleaseLeavesItOpen) {
  const int fd = OpenNull();
  {
    UniqueFd owner(fd);
    EXPECT_EQ(owner.release(), fd);
    EXPECT_FALSE(owner.ok());
  }
  EXPECT_TRUE(IsOpen(fd));
  ::close(fd);
}

TEST(UniqueFdTest, MovingHandsItOnAndClosesWhatWasThere) {
  UniqueFd first(OpenNull());
  const int fd = first.get();
  UniqueFd second(std::move(first));
  EXPECT_FALSE(first.ok());
  UniqueFd third(OpenNull());
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_EQ(third.get(), fd);
  EXPECT_TRUE(IsOpen(fd));
  EXPECT_FALSE(IsOpen(replaced));
  UniqueFd& itself = third;
  third = std::move(itself);
  EXPECT_TRUE(IsOpen(fd));
}

TEST(UniqueFdTest, ResetReplaces) {
  UniqueFd owner(OpenNull());
  const int old = owner.get(), next = OpenNull();
  owner.reset(next);
  EXPECT_FALSE(IsOpen(old));
  EXPECT_EQ(owner.get(), next);
}

}  // namespace
}  // namespace loaderd
