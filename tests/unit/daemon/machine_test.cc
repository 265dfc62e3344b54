// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/machine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace loaderd::daemon {
namespace {

TEST(MachineTest, ThisMachineHasCpusAndMemory) {
  const MachineFacts machine = ReadMachine(/*user_mode=*/true);
  EXPECT_GE(machine.affinity_cpus, 1u);
  EXPECT_GT(machine.memory_bytes, 1u << 20);
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
