// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/state_dir.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"

namespace loaderd::daemon {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string HomeOfUser() {
  std::string home = Environment("HOME");
  if (!home.empty() && !IsAnothers(home)) return home;
  std::vector<char> room(1 << 16);
  passwd entry;
  passwd* found = nullptr;
  ::getpwuid_r(::geteuid(), &entry, room.data(), room.size(), &found);
  return found == nullptr || IsAnothers(found->pw_dir) ? "" : found->pw_dir;
}

}  // namespace

std::string StateDir(const StatePlaces& places, bool user_mode) {
  if (!places.configured.empty()) return places.configured;
  if (!user_mode) {
    const std::string first = places.state_directory.substr(0, places.state_directory.find(':'));
    return first.starts_with('/') ? first : "";
  }
  if (places.xdg_state_home.starts_with('/')) {
    return absl::StrCat(places.xdg_state_home, "/loaderd");
  }
  if (places.home.starts_with('/')) return absl::StrCat(places.home, "/.local/state/loaderd");
  return "";
}

bool IsAnothers(const std::string& path) {
  struct stat facts;
  return ::stat(path.c_str(), &facts) == 0 && facts.st_uid != ::geteuid();
}

std::string StateDirOfProcess(const std::string& configured, bool user_mode) {
  std::string xdg = Environment("XDG_STATE_HOME");
  if (IsAnothers(xdg)) xdg.clear();
  return StateDir({.configured = configured,
                   .state_directory = Environment("STATE_DIRECTORY"),
                   .xdg_state_home = xdg,
                   .home = user_mode ? HomeOfUser() : ""},
                  user_mode);
}

}  // namespace loaderd::daemon
