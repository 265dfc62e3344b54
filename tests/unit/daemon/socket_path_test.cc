// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/socket_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace loaderd::daemon {
namespace {

using testing::HasSubstr;

TEST(SocketPathTest, SegmentSocketStandsBesideTheSocket) {
  EXPECT_EQ(PathsFor("/run/x.sock")->segment_socket, "/run/x-segment.sock");
  EXPECT_EQ(PathsFor("/run/x")->segment_socket, "/run/x-segment");
  EXPECT_EQ(PathsFor("/run/x.sock")->lock, "/run/x.lock");
  EXPECT_TRUE(IsSegmentPath("/run/x-segment.sock"));
  EXPECT_TRUE(IsSegmentPath("/run/x-segment"));
  EXPECT_FALSE(IsSegmentPath("/run/x.sock"));
}

TEST(SocketPathTest, BothPathsHaveAtMost107Bytes) {
  const auto path = [](size_t size) { return absl::StrCat("/", std::string(size - 1, 'a')); };
  EXPECT_EQ(PathsFor(path(99))->segment_socket.size(), 107u);
  EXPECT_THAT(std::string(PathsFor(path(100)).status().message()),
              HasSubstr("segment socket path"));
  EXPECT_THAT(std::string(PathsFor(path(100)).status().message()), HasSubstr("108 bytes"));
  EXPECT_THAT(std::string(PathsFor(path(108)).status().message()), HasSubstr("has 108 bytes"));
}

TEST(SocketPathTest, PathThatNamesNoFileIsRefused) {
  for (const std::string_view path : {std::string_view(), std::string_view("x.sock"),
                                      std::string_view("/run/"), std::string_view("/a\0b", 4)}) {
    EXPECT_EQ(PathsFor(path).status().code(), absl::StatusCode::kInvalidArgument) << path;
  }
}

class UserFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "folder-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    places_ = {.xdg_runtime_dir = "", .run_user = root_ + "/run", .tmp = root_ + "/tmp"};
    std::filesystem::create_directories(root_ + "/tmp");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  static mode_t Mode(const std::string& path) {
    struct stat facts;
    return ::stat(path.c_str(), &facts) == 0 ? facts.st_mode & 07777 : 0;
  }
  std::string Refusal() { return std::string(UserFolder(places_, ::geteuid()).status().message()); }

  std::string root_;
  UserPlaces places_;
};

TEST_F(UserFolderTest, PlacesAreTriedInTheirOrder) {
  const std::string own = absl::StrCat(::geteuid());
  EXPECT_EQ(*UserFolder(places_, ::geteuid()), root_ + "/tmp/loaderd-" + own);
  std::filesystem::create_directories(root_ + "/run/" + own);
  EXPECT_EQ(*UserFolder(places_, ::geteuid()), root_ + "/run/" + own + "/loaderd");
  std::filesystem::create_directories(root_ + "/xdg");
  places_.xdg_runtime_dir = root_ + "/xdg";
  EXPECT_EQ(*UserFolder(places_, ::geteuid()), root_ + "/xdg/loaderd");
}

TEST_F(UserFolderTest, FolderIsPrivateWhateverTheUmask) {
  const mode_t umask = ::umask(0);
  const StatusOr<std::string> folder = UserFolder(places_, ::geteuid());
  ::umask(umask);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(Mode(*folder), 0700u);
}

TEST_F(UserFolderTest, FolderThatOthersMayEnterIsRefused) {
  const std::string folder = absl::StrCat(root_, "/tmp/loaderd-", ::geteuid());
  std::filesystem::create_directories(folder);
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  EXPECT_THAT(Refusal(), HasSubstr("has mode 0755"));
}

TEST_F(UserFolderTest, SymbolicLinkAndFileAreRefused) {
  const std::string folder = absl::StrCat(root_, "/tmp/loaderd-", ::geteuid());
  std::filesystem::create_directories(root_ + "/elsewhere");
  std::filesystem::create_symlink(root_ + "/elsewhere", folder);
  EXPECT_THAT(Refusal(), HasSubstr("is a symbolic link"));
  std::filesystem::remove(folder);
  std::ofstream(folder) << "x";
  EXPECT_THAT(Refusal(), HasSubstr("is not a folder"));
}

TEST_F(UserFolderTest, AnothersFolderIsRefused) {
  const StatusOr<std::string> own = UserFolder(places_, ::geteuid());
  ASSERT_TRUE(own.ok());
  const uid_t other = ::geteuid() + 1;
  std::filesystem::rename(*own, absl::StrCat(root_, "/tmp/loaderd-", other));
  EXPECT_THAT(std::string(UserFolder(places_, other).status().message()),
              HasSubstr(absl::StrCat("belongs to uid ", ::geteuid(), ", not ", other)));
}

TEST_F(UserFolderTest, MissingRuntimeDirIsNamed) {
  places_.xdg_runtime_dir = root_ + "/none";
  EXPECT_THAT(Refusal(), HasSubstr(root_ + "/none/loaderd"));
}

}  // namespace
}  // namespace loaderd::daemon
