// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/machine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace loaderd::daemon {
namespace {

// A made-up /proc/self/cgroup and /sys/fs/cgroup.
class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "cgroup-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  std::string root_;
};

TEST_F(CgroupTest, NoCgroupIsNoLimit) {
  EXPECT_EQ(CgroupCpus(root_), std::nullopt);
  EXPECT_EQ(CgroupMemory(root_), std::nullopt);
}

TEST_F(CgroupTest, TightestOfTheWayToTheRootHoldsInV2) {
  Write("/proc/self/cgroup", "0::/system.slice/loaderd.service");
  Write("/sys/fs/cgroup/system.slice/loaderd.service/cpu.max", "max 100000");
  Write("/sys/fs/cgroup/system.slice/cpu.max", "150000 100000");
  Write("/sys/fs/cgroup/system.slice/loaderd.service/memory.max", "8000000");
  Write("/sys/fs/cgroup/system.slice/memory.max", "max");
  EXPECT_EQ(CgroupCpus(root_), 1.5);
  EXPECT_EQ(CgroupMemory(root_), 8000000u);
}

TEST_F(CgroupTest, V1QuotaIsReadUnderEitherNameOfItsFolder) {
  Write("/proc/self/cgroup", "4:cpu,cpuacct:/a/b\n3:memory:/m\n0::/");
  Write("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1");
  Write("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000");
  Write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "50000");
  Write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000");
  Write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(CgroupCpus(root_), 0.5);
  EXPECT_EQ(CgroupMemory(root_), std::nullopt);
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000");
  EXPECT_EQ(CgroupMemory(root_), 1000u);
}

// In a container the path of the host is told, but only the own part of the hierarchy is mounted.
TEST_F(CgroupTest, InvisiblePathFallsBackToTheRootOfTheMount) {
  Write("/proc/self/cgroup", "2:cpu:/docker/0123456789");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CgroupCpus(root_), 2.0);
}

TEST_F(CgroupTest, NonsenseIsNoLimit) {
  Write("/proc/self/cgroup", "\nxx\n0:\n0::/a/../b");
  Write("/sys/fs/cgroup/cpu.max", "many 0");
  Write("/sys/fs/cgroup/memory.max", "-5");
  EXPECT_EQ(CgroupCpus(root_), std::nullopt);
  EXPECT_EQ(CgroupMemory(root_), std::nullopt);
}

TEST(MachineTest, ThisMachineHasCpusAndMemory) {
  const MachineFacts machine = ReadMachine(/*user_mode=*/true);
  EXPECT_GE(machine.affinity_cpus, 1u);
  EXPECT_GT(machine.memory_bytes, 1u << 20);
}

TEST(MachineTest, UsersDaemonSeesTheSystemsBesideIt) {
  std::string folder = testing::TempDir() + "machine-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/loaderd.sock";
  ::setenv("LOADERD_SYSTEM_SOCKET", path.c_str(), 1);
  EXPECT_FALSE(ReadMachine(/*user_mode=*/true).beside_system_daemon);
  std::ofstream(path) << "no socket";
  EXPECT_FALSE(ReadMachine(/*user_mode=*/true).beside_system_daemon);
  std::filesystem::remove(path);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(ReadMachine(/*user_mode=*/true).beside_system_daemon);
  EXPECT_FALSE(ReadMachine(/*user_mode=*/false).beside_system_daemon);
  ::close(socket);
  ::unsetenv("LOADERD_SYSTEM_SOCKET");
  std::filesystem::remove_all(folder);
}

TEST(MachineTest, SoftDescriptorLimitIsRaisedToTheHardOne) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low = {before.rlim_max / 2, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  MachineFacts machine;
  uint64_t was = 0;
  ASSERT_TRUE(RaiseDescriptorLimit(&machine, &was).ok());
  EXPECT_EQ(was, before.rlim_max / 2);
  EXPECT_EQ(machine.nofile_soft, before.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace loaderd::daemon
