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
