// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/daemon_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ctl/interrupt.h"

extern char** environ;

namespace loaderd::ctl {
namespace {

using std::chrono::steady_clock;

constexpr auto kStartLimit = std::chrono::seconds(20);
constexpr auto kStopLimit = std::chrono::seconds(15);  // the daemon's own deadline is 10 s
constexpr auto kPoll = std::chrono::milliseconds(5);

// Starts `path` with its standard output and standard error in `output`. Other descriptors are
// close-on-exec.
absl::StatusOr<pid_t> SpawnInto(int output, const std::string& path,
                                const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return absl::InternalError(absl::StrCat("start ", path, ": ", std::strerror(error)));
  return pid;
}

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

bool Accepts(const std::string& socket_path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_path.data(),
              std::min(socket_path.size(), sizeof(address.sun_path) - 1));
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected =
      fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (fd >= 0) close(fd);
  return connected;
}

absl::StatusOr<std::string> MakeFolder() {
  const char* base = std::getenv("TMPDIR");
  std::string folder =
      absl::StrCat(base == nullptr || *base == 0 ? "/tmp" : base, "/loaderctl-XXXXXX");
  // A socket's path has 107 bytes at most.
  if (folder.size() + std::strlen("/loaderd-segment.sock") > 107) folder = "/tmp/loaderctl-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::InternalError(absl::StrCat("create folder ", folder, ": ", std::strerror(errno)));
  }
  return folder;
}

std::string LastLines(const std::string& path) {
  constexpr size_t kShown = 800;
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.size() > kShown ? text.substr(text.size() - kShown) : text;
}

}  // namespace

absl::StatusOr<std::string> FindDaemon() {
  std::vector<std::string> places;
  if (const char* named = std::getenv("LOADERD_DAEMON"); named != nullptr && *named != 0) {
    places.emplace_back(named);
  } else {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (!error) places.push_back((self.parent_path() / "loaderd").string());
    const char* path = std::getenv("PATH");
    for (const auto& folder : absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty())) {
      places.push_back(absl::StrCat(folder, "/loaderd"));
    }
  }
  for (const std::string& place : places) {
    std::error_code error;
    if (std::filesystem::is_regular_file(place, error) && access(place.c_str(), X_OK) == 0)
      return place;
  }
  return absl::NotFoundError(absl::StrCat("no executable ",
                                          places.empty() ? "loaderd" : places.front(),
                                          ", nor loaderd in PATH; name it in LOADERD_DAEMON"));
}

absl::StatusOr<Finished> RunDaemon(const std::vector<std::string>& arguments) {
  absl::StatusOr<std::string> path = FindDaemon();
  if (!path.ok()) return path.status();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
  absl::StatusOr<pid_t> pid = SpawnInto(ends[1], *path, arguments);
  close(ends[1]);
  Finished finished;
  char buffer[4096];
  for (ssize_t n = 1; pid.ok() && n != 0;) {
    n = read(ends[0], buffer, sizeof(buffer));
    if (n > 0) finished.output.append(buffer, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  close(ends[0]);
  if (!pid.ok()) return pid.status();
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  finished.exit_code = ExitCode(status);
  return finished;
}

absl::StatusOr<PrivateDaemon> PrivateDaemon::Start(uint32_t fleet_threads) {
  absl::StatusOr<std::string> folder = MakeFolder();
  if (!folder.ok()) return folder.status();
  PrivateDaemon daemon(*std::move(folder));
  if (absl::Status status = daemon.Spawn(fleet_threads); !status.ok()) return status;
  if (absl::Status status = daemon.WaitUntilItAccepts(); !status.ok()) return status;
  return daemon;
}

absl::Status PrivateDaemon::Spawn(uint32_t fleet_threads) {
  absl::StatusOr<std::string> path = FindDaemon();
  if (!path.ok()) return path.status();
  const std::string config = folder_ + "/config.txtpb";
  std::ofstream(config) << "fleet { threads: " << fleet_threads << " }\n";
  const int log = open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (log < 0)
    return absl::InternalError(absl::StrCat("create ", folder_, "/log: ", std::strerror(errno)));
  absl::StatusOr<pid_t> pid = SpawnInto(
      log, *path, {"--user", "--socket", socket(), "--config", config, "--idle-exit", "5"});
  close(log);
  if (!pid.ok()) return pid.status();
  pid_ = *pid;
  return absl::OkStatus();
}

absl::Status PrivateDaemon::WaitUntilItAccepts() {
  const auto limit = steady_clock::now() + kStartLimit;
  while (!Accepts(socket())) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return absl::InternalError(absl::StrCat("the private daemon ended with code ",
                                              ExitCode(status), ":\n",
                                              LastLines(folder_ + "/log")));
    }
    if (steady_clock::now() > limit) {
      return absl::DeadlineExceededError(absl::StrCat("the private daemon does not listen after ",
                                                      kStartLimit.count(), " s:\n",
                                                      LastLines(folder_ + "/log")));
    }
    std::this_thread::sleep_for(kPoll);
  }
  return absl::OkStatus();
}

PrivateDaemon::PrivateDaemon(PrivateDaemon&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), pid_(std::exchange(other.pid_, -1)) {}

PrivateDaemon::~PrivateDaemon() {
  if (folder_.empty()) return;
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    const auto limit = steady_clock::now() + kStopLimit;
    while (waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (steady_clock::now() > limit) kill(pid_, SIGKILL);
      std::this_thread::sleep_for(kPoll);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace loaderd::ctl
