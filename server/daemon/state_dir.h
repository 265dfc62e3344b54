// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace loaderd::daemon {

// Where what outlives the daemon may be kept.
struct StatePlaces {
  std::string configured;  // state_dir; before all others
  std::string
      state_directory;  // systemd's STATE_DIRECTORY, as systemd.exec(5) says: the first of them
  std::string xdg_state_home;  // of the user daemon, as home
  std::string home;
};

// The folder, not yet made; empty where nothing may be kept. Of the places that the environment
// names, those that are not absolute count for nothing. The user daemon takes the first of
// `configured`, $XDG_STATE_HOME/loaderd and $HOME/.local/state/loaderd, the system daemon
// `configured` or systemd's.
std::string StateDir(const StatePlaces& places, bool user_mode);

// With the process's environment, of which what belongs to another user counts for nothing: after
// su or sudo it may still name that user's. A user without a HOME has the one of the user database.
std::string StateDirOfProcess(const std::string& configured, bool user_mode);

// True for what is there and belongs to another user.
bool IsAnothers(const std::string& path);

}  // namespace loaderd::daemon
