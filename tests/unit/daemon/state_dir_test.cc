// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/state_dir.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace loaderd::daemon {
namespace {

constexpr bool kUser = true;
constexpr bool kSystem = false;

TEST(StateDirTest, TheConfigurationComesFirst) {
  const StatePlaces places = {.configured = "/mine",
                              .state_directory = "/var/lib/loaderd",
                              .xdg_state_home = "/home/a/state",
                              .home = "/home/a"};
  EXPECT_EQ(StateDir(places, kUser), "/mine");
  EXPECT_EQ(StateDir(places, kSystem), "/mine");
}

// The places that the environment names.
StatePlaces Named(const std::string& systemds, const std::string& xdg, const std::string& home) {
  return {.configured = "", .state_directory = systemds, .xdg_state_home = xdg, .home = home};
}

TEST(StateDirTest, TheSystemDaemonTakesTheFirstOfSystemdsOrNone) {
  EXPECT_EQ(StateDir(Named("/var/lib/loaderd", "/x", "/home/a"), kSystem), "/var/lib/loaderd");
  EXPECT_EQ(StateDir(Named("/var/lib/a:/var/lib/b", "", ""), kSystem), "/var/lib/a");
  EXPECT_EQ(StateDir(Named("", "/x", "/home/a"), kSystem), "");
  EXPECT_EQ(StateDir(Named("relative", "", ""), kSystem), "");
}

TEST(StateDirTest, TheUsersDaemonFollowsXdg) {
  EXPECT_EQ(StateDir(Named("", "/x", "/home/a"), kUser), "/x/loaderd");
  EXPECT_EQ(StateDir(Named("", "", "/home/a"), kUser), "/home/a/.local/state/loaderd");
  // The XDG specification has relative paths ignored.
  EXPECT_EQ(StateDir(Named("", "x", "/home/a"), kUser), "/home/a/.local/state/loaderd");
  EXPECT_EQ(StateDir(Named("/var/lib/loaderd", "", ""), kUser), "");
}

TEST(StateDirTest, WhatBelongsToAnotherUserIsSeen) {
  EXPECT_FALSE(IsAnothers("/nonexistent"));
  std::string folder = testing::TempDir() + "state-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  EXPECT_FALSE(IsAnothers(folder));
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(folder.c_str(), 65534, 65534), 0);
    EXPECT_TRUE(IsAnothers(folder));
  } else {
    EXPECT_TRUE(IsAnothers("/"));
  }
  ::rmdir(folder.c_str());
}

}  // namespace
}  // namespace loaderd::daemon
