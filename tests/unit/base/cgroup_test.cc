// SPDX-License-Identifier: Apache-2.0
#include "server/base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace loaderd {
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

TEST_F(CgroupTest, TaskLimitThatLeavesTheFewestHolds) {
  Write("/proc/self/cgroup", "0::/user.slice/a.scope");
  Write("/sys/fs/cgroup/user.slice/a.scope/pids.max", "max");
  Write("/sys/fs/cgroup/user.slice/a.scope/pids.current", "3");
  Write("/sys/fs/cgroup/user.slice/pids.max", "100");
  Write("/sys/fs/cgroup/user.slice/pids.current", "90");
  Write("/sys/fs/cgroup/pids.max", "50");
  Write("/sys/fs/cgroup/pids.current", "10");
  ASSERT_TRUE(CgroupTasks(root_).has_value());
  EXPECT_EQ(CgroupTasks(root_)->most, 100u);
  EXPECT_EQ(CgroupTasks(root_)->now, 90u);
}

TEST_F(CgroupTest, TaskLimitOfV1IsThatOfItsOwnHierarchy) {
  Write("/proc/77/cgroup", "8:pids:/job_1\n0::/");
  Write("/sys/fs/cgroup/pids/job_1/pids.max", "64");
  Write("/sys/fs/cgroup/pids/job_1/pids.current", "60");
  EXPECT_FALSE(CgroupTasks(root_).has_value());
  ASSERT_TRUE(CgroupTasks(root_, "77").has_value());
  EXPECT_EQ(CgroupTasks(root_, "77")->most, 64u);
}

}  // namespace
}  // namespace loaderd
