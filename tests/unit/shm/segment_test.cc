// SPDX-License-Identifier: Apache-2.0
#include "server/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

namespace loaderd::shm {
namespace {

constexpr uint64_t kMiB = 1 << 20;

uint64_t AllocatedBytes(int fd) {
  struct stat st {};
  EXPECT_EQ(::fstat(fd, &st), 0);
  return static_cast<uint64_t>(st.st_blocks) * 512;
}

TEST(SegmentTest, HasTheAskedSizeAndReadsAsZeros) {
  auto segment = Segment::Create(kMiB, kMiB);
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_EQ(segment->bytes().size(), kMiB);
  EXPECT_TRUE(std::ranges::all_of(segment->bytes(), [](uint8_t b) { return b == 0; }));
}

TEST(SegmentTest, CannotShrinkGrowOrBeSealedFurther) {
  auto segment = Segment::Create(kMiB, kMiB);
  ASSERT_TRUE(segment.ok());
  EXPECT_EQ(::fcntl(segment->fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(::ftruncate(segment->fd(), 4096), 0);
  EXPECT_NE(::ftruncate(segment->fd(), 2 * kMiB), 0);
  EXPECT_NE(::fcntl(segment->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SegmentTest, IsCloseOnExecAndNamedInProcMaps) {
  auto segment = Segment::Create(kMiB, kMiB);
  ASSERT_TRUE(segment.ok());
  EXPECT_TRUE(::fcntl(segment->fd(), F_GETFD) & FD_CLOEXEC);
  std::ifstream maps("/proc/self/maps");
  const std::string text((std::istreambuf_iterator<char>(maps)), {});
  EXPECT_NE(text.find("memfd:loaderd"), std::string::npos);
}

TEST(SegmentTest, TakesTheOtherPagesWhenTold) {
  auto segment = Segment::Create(4 * kMiB, kMiB);
  ASSERT_TRUE(segment.ok());
  EXPECT_EQ(AllocatedBytes(segment->fd()), kMiB);
  segment->bytes()[0] = 5;
  ASSERT_TRUE(Segment::Back(segment->fd(), 2 * kMiB, kMiB).ok());
  EXPECT_EQ(AllocatedBytes(segment->fd()), 2 * kMiB);
  ASSERT_TRUE(Segment::Back(segment->fd(), 0, 4 * kMiB).ok());
  EXPECT_EQ(AllocatedBytes(segment->fd()), 4 * kMiB);
  EXPECT_EQ(segment->bytes()[0], 5);
  EXPECT_EQ(Segment::Back(-1, 0, kMiB).code(), absl::StatusCode::kResourceExhausted);
}

TEST(SegmentTest, BeginsWithPrefaultedMemoryOfAnySize) {
  for (const uint64_t ready : {kMiB / 2, kMiB, 2 * kMiB, 4 * kMiB, 9 * kMiB}) {
    auto memory = Segment::Prefault(ready);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(AllocatedBytes(memory->get()), ready);
    const int fd = memory->get();
    auto segment = Segment::Create(4 * kMiB, kMiB, *std::move(memory));
    ASSERT_TRUE(segment.ok()) << segment.status();
    EXPECT_EQ(segment->fd(), fd);
    EXPECT_EQ(segment->bytes().size(), 4 * kMiB);
    EXPECT_EQ(AllocatedBytes(fd), std::clamp(ready, kMiB, 4 * kMiB));
    EXPECT_EQ(::fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    EXPECT_TRUE(std::ranges::all_of(segment->bytes(), [](uint8_t b) { return b == 0; }));
  }
}

TEST(SegmentTest, PagesAreReservedAtCreation) {
  auto segment = Segment::Create(kMiB, kMiB);
  ASSERT_TRUE(segment.ok());
  EXPECT_EQ(AllocatedBytes(segment->fd()), kMiB);
}

TEST(SegmentTest, AnotherMappingSeesWhatIsWrittenAndZerosAfterPunch) {
  auto segment = Segment::Create(kMiB, kMiB);
  ASSERT_TRUE(segment.ok());
  auto* other =
      static_cast<uint8_t*>(::mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, segment->fd(), 0));
  ASSERT_NE(other, MAP_FAILED);
  segment->bytes()[kMiB - 1] = 7;
  EXPECT_EQ(other[kMiB - 1], 7);
  segment->Punch();
  EXPECT_EQ(AllocatedBytes(segment->fd()), 0u);
  EXPECT_EQ(other[kMiB - 1], 0);
  ::munmap(other, kMiB);
}

TEST(SegmentTest, OutlivesAMoveAndClosesItsDescriptorAtTheEnd) {
  int fd = -1;
  {
    auto segment = Segment::Create(kMiB, kMiB);
    ASSERT_TRUE(segment.ok());
    Segment moved = *std::move(segment);
    moved.bytes()[0] = 1;
    fd = moved.fd();
    EXPECT_GE(::fcntl(fd, F_GETFD), 0);
  }
  EXPECT_LT(::fcntl(fd, F_GETFD), 0);
}

TEST(SegmentTest, NoDescriptorLeftIsResourceExhaustedWithTheSize) {
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const rlimit none{0, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  auto segment = Segment::Create(kMiB, kMiB);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  ASSERT_EQ(segment.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(segment.status().message().find("1048576 bytes"), std::string::npos)
      << segment.status();
}

TEST(SegmentTest, MoreThanAFileCanHoldIsAnError) {
  auto segment = Segment::Create(uint64_t{1} << 63, kMiB);
  EXPECT_EQ(segment.status().code(), absl::StatusCode::kResourceExhausted) << segment.status();
}

}  // namespace
}  // namespace loaderd::shm
