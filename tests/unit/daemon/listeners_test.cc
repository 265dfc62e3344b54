// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/listeners.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace loaderd::daemon {
namespace {

using testing::HasSubstr;

class ListenersTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "listen-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    options_.paths = *PathsFor(folder_ + "/d.sock");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  StatusOr<std::unique_ptr<Listeners>> Open(std::vector<PassedDescriptor> passed = {}) {
    return Listeners::Open(options_, std::move(passed));
  }
  std::string Refusal(std::vector<PassedDescriptor> passed = {}) {
    return std::string(Open(std::move(passed)).status().message());
  }
  static sockaddr_un Address(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    return address;
  }
  static UniqueFd Bound(const std::string& path, int type = SOCK_STREAM, bool listening = true) {
    UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    const sockaddr_un address = Address(path);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
        << path;
    if (listening) {
      EXPECT_EQ(::listen(fd.get(), 5), 0);
    }
    return fd;
  }
  static bool Connects(const std::string& path) {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = Address(path);
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  static std::vector<PassedDescriptor> Passed(UniqueFd fd, std::string name = "unknown") {
    std::vector<PassedDescriptor> passed;
    passed.push_back({std::move(fd), std::move(name)});
    return passed;
  }
  size_t FilesLeft() const {
    return std::distance(std::filesystem::directory_iterator(folder_),
                         std::filesystem::directory_iterator());
  }

  std::string folder_;
  Listeners::Options options_;
};

TEST_F(ListenersTest, BothSocketsListenAndLeaveNothingBehind) {
  {
    const auto listeners = Open();
    ASSERT_TRUE(listeners.ok()) << listeners.status();
    EXPECT_TRUE(Connects(options_.paths.socket));
    EXPECT_TRUE(Connects(options_.paths.segment_socket));
    std::ifstream lock(options_.paths.lock);
    pid_t pid = 0;
    std::string mount_namespace;
    lock >> pid >> mount_namespace;
    EXPECT_EQ(pid, ::getpid());
    EXPECT_EQ(mount_namespace, std::filesystem::read_symlink("/proc/self/ns/mnt"));
    EXPECT_EQ(FilesLeft(), 3u);
  }
  EXPECT_EQ(FilesLeft(), 0u);
}

TEST_F(ListenersTest, ModeIsTheConfiguredOneWhateverTheUmask) {
  for (const mode_t umask : {0000u, 0077u, 0777u}) {
    const mode_t before = ::umask(umask);
    options_.mode = 0660;
    const auto listeners = Open();
    EXPECT_EQ(::umask(before), umask) << "the umask is as it was";
    ASSERT_TRUE(listeners.ok()) << listeners.status();
    for (const std::string& path : {options_.paths.socket, options_.paths.segment_socket}) {
      struct stat facts;
      ASSERT_EQ(::stat(path.c_str(), &facts), 0);
      EXPECT_EQ(facts.st_mode & 07777, 0660u);
      EXPECT_EQ(facts.st_gid, ::getegid());
    }
  }
}

TEST_F(ListenersTest, SecondInstanceIsToldWhoRunsAndTouchesNothing) {
  const auto first = Open();
  ASSERT_TRUE(first.ok());
  const Status second = Open().status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.message()),
              HasSubstr(absl::StrCat("already running: loaderd with PID ", ::getpid())));
  EXPECT_TRUE(Connects(options_.paths.socket));
  EXPECT_EQ(FilesLeft(), 3u);
}

TEST_F(ListenersTest, DeadDaemonsSocketsAreReplaced) {
  for (const std::string& path : {options_.paths.socket, options_.paths.segment_socket})
    Bound(path).reset();
  std::ofstream(options_.paths.lock) << "123456\n";
  const auto listeners = Open();
  ASSERT_TRUE(listeners.ok()) << listeners.status();
  EXPECT_TRUE(Connects(options_.paths.socket));
}

TEST_F(ListenersTest, LiveSocketOfAnotherProgramIsLeftAlone) {
  const UniqueFd other = Bound(options_.paths.socket);
  EXPECT_THAT(Refusal(),
              HasSubstr("the live socket of another program stands there and is left untouched"));
  EXPECT_TRUE(Connects(options_.paths.socket));
  EXPECT_EQ(FilesLeft(), 1u);
}

TEST_F(ListenersTest, DatagramSocketIsLeftAlone) {
  const UniqueFd other = Bound(options_.paths.socket, SOCK_DGRAM, /*listening=*/false);
  EXPECT_THAT(Refusal(), HasSubstr("a socket of another type"));
}

TEST_F(ListenersTest, WhateverElseStandsAtThePathIsNamedAndLeftAlone) {
  const std::string& path = options_.paths.segment_socket;
  std::ofstream(path) << "precious";
  EXPECT_THAT(Refusal(), HasSubstr(absl::StrCat(path, ": a regular file stands there")));
  EXPECT_EQ(std::filesystem::file_size(path), 8u);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_THAT(Refusal(), HasSubstr("a folder stands there"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink(folder_ + "/target", path);
  EXPECT_THAT(Refusal(), HasSubstr("a symbolic link stands there"));
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("a FIFO stands there"));
  EXPECT_EQ(FilesLeft(), 1u) << "the first socket, made before, and the lock are gone again";
}

TEST_F(ListenersTest, AnothersSocketIsLeftAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a socket away";
  Bound(options_.paths.socket).reset();
  ASSERT_EQ(::lchown(options_.paths.socket.c_str(), 12345, 12345), 0);
  EXPECT_THAT(Refusal(), HasSubstr("a socket of uid 12345"));
}

TEST_F(ListenersTest, LockThatIsNoFileOfOursIsRefused) {
  std::filesystem::create_symlink("/etc/passwd", options_.paths.lock);
  EXPECT_THAT(Refusal(), HasSubstr("d.lock: a symbolic link"));
  std::filesystem::remove(options_.paths.lock);
  ASSERT_EQ(::mkfifo(options_.paths.lock.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("d.lock: a FIFO"));
}

TEST_F(ListenersTest, MissingFolderSaysHowToMakeIt) {
  options_.paths = *PathsFor(folder_ + "/none/d.sock");
  EXPECT_THAT(Refusal(), testing::AllOf(HasSubstr(folder_ + "/none"),
                                        HasSubstr("RuntimeDirectory="), HasSubstr("mkdir -p")));
}

TEST_F(ListenersTest, SocketThatIsNoLongerOursIsNotRemoved) {
  auto listeners = Open();
  ASSERT_TRUE(listeners.ok());
  std::filesystem::remove(options_.paths.socket);
  std::ofstream(options_.paths.socket) << "somebody else's";
  listeners->reset();
  EXPECT_TRUE(std::filesystem::exists(options_.paths.socket));
  EXPECT_EQ(FilesLeft(), 1u);
}

TEST_F(ListenersTest, PassedSocketsAreToldApartByNameOrAddress) {
  for (const bool named : {false, true}) {
    std::filesystem::remove(options_.paths.socket);
    std::filesystem::remove(options_.paths.segment_socket);
    std::vector<PassedDescriptor> passed =
        Passed(Bound(options_.paths.segment_socket), named ? "segment" : "loaderd.socket");
    const int segment = passed[0].fd.get();
    passed.push_back({Bound(options_.paths.socket), named ? "grpc" : "loaderd.socket"});
    const auto listeners = Open(std::move(passed));
    ASSERT_TRUE(listeners.ok()) << listeners.status();
    const UniqueFd taken = (*listeners)->TakeSegmentSocket();
    EXPECT_EQ(taken.get(), segment);
    EXPECT_NE(::fcntl(taken.get(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_FALSE(std::filesystem::exists(options_.paths.lock));
  }
  EXPECT_EQ(FilesLeft(), 2u) << "what was passed is not removed";
}

TEST_F(ListenersTest, MissingOneIsMadeBesideThePassedOne) {
  const std::string path = folder_ + "/other.sock";
  const auto listeners = Open(Passed(Bound(path)));
  ASSERT_TRUE(listeners.ok()) << listeners.status();
  EXPECT_EQ((*listeners)->paths().socket, path);
  EXPECT_TRUE(Connects(folder_ + "/other-segment.sock"));
  EXPECT_THAT((*listeners)->description(), HasSubstr("other.sock (passed) segment_socket="));
}

TEST_F(ListenersTest, UsersDaemonSaysWhereItsPathsLeadBesidePassedSocketsToo) {
  options_.lock_passed = true;
  const std::string here = std::filesystem::read_symlink("/proc/self/ns/mnt");
  const auto both = [&] {
    auto passed = Passed(Bound(folder_ + "/d.sock"));
    passed.push_back({Bound(folder_ + "/d-segment.sock"), "unknown"});
    return passed;
  };
  {
    const auto listeners = Open(both());
    ASSERT_TRUE(listeners.ok()) << listeners.status();
    std::ostringstream lock;
    lock << std::ifstream(options_.paths.lock).rdbuf();
    EXPECT_EQ(lock.str(), absl::StrCat(::getpid(), "\n", here, "\n"));
  }
  EXPECT_FALSE(std::filesystem::exists(options_.paths.lock));
  for (const char* const socket : {"/d.sock", "/d-segment.sock"})
    std::filesystem::remove(folder_ + socket);
  // Where the lock cannot be had, the sockets serve all the same.
  ASSERT_EQ(::mkfifo(options_.paths.lock.c_str(), 0600), 0);
  EXPECT_TRUE(Open(both()).ok());
  EXPECT_TRUE(std::filesystem::is_fifo(options_.paths.lock));
}

TEST_F(ListenersTest, SegmentSocketThatClientsWouldNotFindIsRefused) {
  EXPECT_THAT(Refusal(Passed(Bound(folder_ + "/x-segment.sock"))),
              HasSubstr(absl::StrCat("look for it at ", folder_, "/d-segment")));
}

TEST_F(ListenersTest, UnexpectedPassedDescriptorsAreNamed) {
  EXPECT_THAT(Refusal(Passed(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)))),
              HasSubstr("is a device"));
  const std::string file = folder_ + "/file";
  std::ofstream(file) << "x";
  EXPECT_THAT(Refusal(Passed(UniqueFd(::open(file.c_str(), O_RDONLY | O_CLOEXEC)))),
              HasSubstr("is a regular file"));
  EXPECT_THAT(Refusal(Passed(Bound(folder_ + "/dgram", SOCK_DGRAM, false))),
              HasSubstr("is no stream socket"));
  EXPECT_THAT(Refusal(Passed(Bound(folder_ + "/deaf", SOCK_STREAM, false))),
              HasSubstr("does not listen"));
  UniqueFd tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (tcp.ok()) {
    EXPECT_THAT(Refusal(Passed(std::move(tcp))), HasSubstr("is no Unix socket"));
  }
  std::vector<PassedDescriptor> twice = Passed(Bound(folder_ + "/one"));
  twice.push_back({Bound(folder_ + "/two"), "unknown"});
  EXPECT_THAT(Refusal(std::move(twice)), HasSubstr("two is the second gRPC socket"));
}

}  // namespace
}  // namespace loaderd::daemon
