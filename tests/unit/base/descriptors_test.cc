// SPDX-License-Identifier: Apache-2.0
#include "server/base/descriptors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>

#include "absl/strings/str_split.h"
#include "server/base/unique_fd.h"

namespace loaderd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

mode_t TypeNamed(const std::string& name) {
  const std::map<std::string, mode_t> types = {{"-", 0},           {"file", S_IFREG},
                                               {"fifo", S_IFIFO},  {"directory", S_IFDIR},
                                               {"block", S_IFBLK}, {"character", S_IFCHR}};
  return types.at(name);
}

TEST(DescriptorsTest, KindAndTargetAreThoseOfTheTableThatPythonHasToo) {
  std::ifstream table(LOADERD_SOURCE_DIR "/tests/support/fixtures/descriptors.tsv");
  int rows = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with('#')) continue;
    const std::vector<std::string> row = absl::StrSplit(line, '\t');
    ASSERT_EQ(row.size(), 4u) << line;
    EXPECT_EQ(DescriptorKind(row[0], TypeNamed(row[1])), row[2]) << line;
    EXPECT_EQ(DescriptorTarget(row[0]), row[3]) << line;
    ++rows;
  }
  EXPECT_GT(rows, 20);
}

TEST(DescriptorsTest, ThisProcessesAreFoundByNumberKindAndTarget) {
  const std::string folder = testing::TempDir();
  const std::map<std::string, int> made = {
      {"directory", ::open(folder.c_str(), O_RDONLY | O_CLOEXEC)},
      {"device", ::open("/dev/null", O_RDONLY | O_CLOEXEC)},
      {"socket", ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)},
      {"memfd", ::memfd_create("mine", MFD_CLOEXEC)},
      {"eventfd", ::eventfd(0, EFD_CLOEXEC)},
      {"epoll", ::epoll_create1(EPOLL_CLOEXEC)}};
  const std::map<std::string, uint64_t> with = CountOwnDescriptorsByKind();
  const uint64_t count = CountOwnDescriptors();
  const StatusOr<std::vector<OpenDescriptor>> open = ListDescriptors("self");
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->size(), count);
  uint64_t sum = 0;
  for (const auto& [kind, number] : with) sum += number;
  EXPECT_EQ(sum, count);
  for (const auto& [kind, number] : made) {
    const auto found =
        std::find_if(open->begin(), open->end(),
                     [number = number](const OpenDescriptor& d) { return d.number == number; });
    ASSERT_NE(found, open->end()) << kind;
    EXPECT_EQ(found->kind, kind);
    const std::map<std::string, std::string> targets = {
        {"device", "/dev/null"}, {"memfd", "memfd:mine"}, {"socket", "unix"}};
    if (const auto target = targets.find(kind); target != targets.end()) {
      EXPECT_EQ(found->target, target->second);
    }
    EXPECT_GE(with.at(kind), 1u);
    ::close(number);
  }
  EXPECT_EQ(CountOwnDescriptors(), count - made.size());
}

TEST(DescriptorsTest, KindsAreCountedAlsoWhereNoDescriptorIsLeft) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const std::map<std::string, uint64_t> had = CountOwnDescriptorsByKind();
  const rlimit low = {64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<UniqueFd> taken;
  for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.emplace_back(fd);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_EQ(ListDescriptors("self").status().code(), absl::StatusCode::kResourceExhausted);
  std::map<std::string, uint64_t> all = had;
  all["device"] += taken.size();
  EXPECT_EQ(CountOwnDescriptorsByKind(), all);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(DescriptorsTest, ProcessThatIsNotThereIsNotFound) {
  const Status status = ListDescriptors("4194304").status();  // above PID_MAX_LIMIT
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(status), HasSubstr("no process 4194304"));
  EXPECT_EQ(ReadLimit("4194304", "Max open files").status().code(), absl::StatusCode::kNotFound);
}

TEST(DescriptorsTest, LimitIsTheKernels) {
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const StatusOr<ResourceLimit> read = ReadLimit("self", "Max open files");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->soft, limit.rlim_cur);
  EXPECT_EQ(read->hard, limit.rlim_max);
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  if (limit.rlim_cur == RLIM_INFINITY) {
    EXPECT_EQ(ReadLimit("self", "Max file size")->soft, ResourceLimit::kUnlimited);
  }
}

TEST(DescriptorsTest, SocketsGetTheNamesOfProcNet) {
  std::map<uint64_t, std::string> names;
  ParseUnixSockets(
      "Num       RefCount Protocol Flags    Type St Inode Path\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 21 /run/with a space.sock\n"
      "0000000000000000: 00000003 00000000 00000000 0001 03 22\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 23 @abstract\n",
      names);
  ParseInternetSockets(
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 "
      "31 1 0 100 0 0 10 0\n"
      "   1: 0100007F:1F90 00000000:0000 06 00000000:00000000 00:00000000 00000000     0        0 "
      "0 1 0 100 0 0 10 0\n",
      "tcp", names);
  EXPECT_THAT(names, ElementsAre(Pair(21, "unix /run/with a space.sock"), Pair(22, "unix"),
                                 Pair(23, "unix @abstract"), Pair(31, "tcp")));
}

}  // namespace
}  // namespace loaderd
