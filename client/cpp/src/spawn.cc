// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/spawn.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "client/cpp/src/text.h"
#include "client/cpp/src/unix_socket.h"

extern char** environ;

namespace loaderd::client {
namespace {

using std::chrono::milliseconds;

constexpr off_t kMaxLog = 4 << 20;  // an older log is emptied from here on
constexpr size_t kLogTail = 600;

bool IsExecutable(const std::string& path) {
  struct stat facts;
  return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

std::string Absolute(const std::string& path) {
  if (path.starts_with('/')) return path;
  char folder[PATH_MAX];
  return ::getcwd(folder, sizeof folder) == nullptr ? path : std::string(folder) + '/' + path;
}

std::string LibraryFolder() {
  Dl_info found;
  if (::dladdr(reinterpret_cast<const void*>(&loaderd_abi_version), &found) == 0 ||
      found.dli_fname == nullptr) {
    return {};
  }
  const std::string path = Absolute(found.dli_fname);
  return path.substr(0, path.rfind('/'));
}

// The trainer's own, less what belongs to the trainer's executable.
std::vector<std::string> DaemonEnvironment(const std::string& runtime_folder) {
  std::vector<std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("LD_PRELOAD=") || text.starts_with("LD_LIBRARY_PATH=") ||
        text.starts_with("PYTHON") || text.starts_with("XDG_RUNTIME_DIR=")) {
      continue;
    }
    out.emplace_back(text);
  }
  out.push_back("XDG_RUNTIME_DIR=" + runtime_folder);
  return out;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// posix_spawn's two objects with their lifetimes.
class SpawnPlan {
 public:
  SpawnPlan() {
    ok_ = ::posix_spawn_file_actions_init(&actions_) == 0;
    ok_ = ::posix_spawnattr_init(&attributes_) == 0 && ok_;
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  int Run(const std::string& executable, int log, char* const* arguments, char* const* environment,
          pid_t* pid) {
    if (!ok_) return ENOMEM;
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    int error = 0;
    const auto step = [&](int result) {
      if (error == 0) error = result;
    };
    step(::posix_spawnattr_setsigmask(&attributes_, &none));
    step(::posix_spawnattr_setsigdefault(&attributes_, &all));
    step(::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    step(::posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0));
    step(::posix_spawn_file_actions_addopen(&actions_, 1, "/dev/null", O_WRONLY, 0));
    step(::posix_spawn_file_actions_adddup2(&actions_, log, 2));
    step(::posix_spawn_file_actions_addclosefrom_np(&actions_, 3));
    step(::posix_spawn_file_actions_addchdir_np(&actions_, "/"));
    if (error != 0) return error;
    return ::posix_spawn(pid, executable.c_str(), &actions_, &attributes_, arguments, environment);
  }

 private:
  bool ok_ = false;
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// The daemon's standard error. Its lock passes to the daemon with the descriptor and lasts as long
// as the daemon does, so whoever can take it knows that the daemon is gone, although it is nobody's
// child.
class DaemonLog {
 public:
  explicit DaemonLog(std::string path) : path_(std::move(path)), file_(Open(path_)) {
    struct stat facts;
    if (!file_.ok() || ::fstat(file_.get(), &facts) != 0) return;
    begin_ = facts.st_size;
    if (begin_ > kMaxLog && ::ftruncate(file_.get(), 0) == 0) begin_ = 0;
    locked_ = ::flock(file_.get(), LOCK_SH | LOCK_NB) == 0;
  }

  const GuardedFd& file() const { return file_; }
  const std::string& path() const { return path_; }
  void LetGo() { file_.Close(); }

  bool DaemonIsGone() const {
    if (!locked_) return false;
    const GuardedFd probe(Open(path_));
    return probe.ok() && ::flock(probe.get(), LOCK_EX | LOCK_NB) == 0;
  }

  // What was written since, at most its end, in one line.
  std::string Tail() const {
    const GuardedFd log([this] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); });
    struct stat facts;
    if (!log.ok() || ::fstat(log.get(), &facts) != 0) return {};
    std::string text(kLogTail, '\0');
    const off_t from = std::max<off_t>(begin_, facts.st_size - static_cast<off_t>(kLogTail));
    const ssize_t got = ::pread(log.get(), text.data(), text.size(), from);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (from > begin_) text.erase(0, text.find('\n') + 1);
    std::string line;
    for (const char c : text) line += c == '\n' ? std::string(" | ") : std::string(1, c);
    return Printable(line);
  }

 private:
  static std::function<int()> Open(const std::string& path) {
    return [&path] {
      return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    };
  }

  const std::string path_;
  GuardedFd file_;
  off_t begin_ = 0;
  bool locked_ = false;
};

Status ExitError(const std::string& executable, const DaemonLog& log, const std::string& how) {
  const std::string tail = log.Tail();
  return Error(LOADERD_UNAVAILABLE, "the daemon " + Printable(executable) + " " + how + "; " +
                                        (tail.empty() ? "it wrote nothing to " : "it wrote to ") +
                                        Printable(log.path()) + (tail.empty() ? "" : ": " + tail));
}

// Waits for the first process, which ends as soon as the daemon runs apart from us.
Status Reap(pid_t pid, const std::string& executable, const DaemonLog& log, Patience* patience) {
  for (;;) {
    int how = 0;
    const pid_t reaped = ::waitpid(pid, &how, WNOHANG);
    // The process collects all its children itself, or by SIG_IGN: then whether the daemon answers
    // is all there is to see.
    if (reaped < 0 && errno == ECHILD) return Ok();
    if (reaped == pid) {
      if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return Ok();
      return ExitError(executable, log,
                       WIFEXITED(how) ? "ended with exit code " + std::to_string(WEXITSTATUS(how))
                                      : "was killed by signal " + std::to_string(WTERMSIG(how)));
    }
    Status waited = patience->Wait(-1, 0, "starting " + Printable(executable), milliseconds(5));
    if (!waited.ok()) {
      if (waited.code != LOADERD_FORKED) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, &how, 0);
      }
      return waited;
    }
  }
}

Status Start(const Options& options, const std::string& socket, Patience* patience,
             std::unique_ptr<GuardedFd>* fd) {
  std::string executable;
  Status status = FindDaemon(options, &executable);
  if (!status.ok()) return status;
  const std::string folder = socket.substr(0, socket.rfind('/'));
  DaemonLog log(folder + "/loaderd.log");
  if (!log.file().ok()) {
    return ErrnoError(LOADERD_UNAVAILABLE, "cannot open " + Printable(log.path()),
                      log.file().error());
  }
  std::vector<std::string> argument_texts = {"loaderd", "--user",      "--detach", "--socket",
                                             socket,    "--idle-exit", "60"};
  std::vector<std::string> environment_texts =
      DaemonEnvironment(folder.substr(0, folder.rfind('/')));
  const std::vector<char*> arguments = Pointers(argument_texts);
  const std::vector<char*> environment = Pointers(environment_texts);
  pid_t pid = -1;
  SpawnPlan plan;
  const int error =
      plan.Run(executable, log.file().get(), arguments.data(), environment.data(), &pid);
  log.LetGo();
  if (error != 0) {
    return ErrnoError(LOADERD_UNAVAILABLE, "cannot start " + Printable(executable), error);
  }
  status = Reap(pid, executable, log, patience);
  if (!status.ok()) return status;
  options.Log("started the user's daemon " + Printable(executable) + " on " + Printable(socket) +
              "; its log is " + Printable(log.path()));
  for (;;) {
    const bool gone = log.DaemonIsGone();
    int connect_error = 0;
    status = Connect(socket, patience, fd, &connect_error);
    if (status.ok() || (connect_error != ENOENT && connect_error != ECONNREFUSED)) return status;
    if (gone) return ExitError(executable, log, "ended before it answered on " + Printable(socket));
    status = patience->Wait(-1, 0, "waiting for the started daemon on " + Printable(socket),
                            milliseconds(20));
    if (!status.ok()) {
      const std::string tail = log.Tail();
      if (!tail.empty()) status.text += "; it wrote to " + Printable(log.path()) + ": " + tail;
      return status;
    }
  }
}

}  // namespace

Status FindDaemon(const Options& options, std::string* executable) {
  const char* const variable = std::getenv("LOADERD_DAEMON");
  std::string named = options.daemon;
  std::string by = "the daemon option";
  if (named.empty() && variable != nullptr && *variable != '\0') {
    named = variable;
    by = "LOADERD_DAEMON";
  }
  if (!named.empty()) {
    *executable = Absolute(named);
    if (IsExecutable(*executable)) return Ok();
    return Error(LOADERD_NOT_FOUND, Printable(named) + " (" + by +
                                        ") is no executable file; name the daemon, loaderd");
  }
  std::vector<std::string> candidates;
  const std::string library = LibraryFolder();
  if (!library.empty()) {
    for (const char* const place : {"/../bin/loaderd", "/bin/loaderd", "/../../bin/loaderd"}) {
      candidates.push_back(library + place);
    }
  }
  const char* const variable_path = std::getenv("PATH");
  std::string_view path = variable_path != nullptr ? variable_path : "";
  while (!path.empty()) {
    const size_t end = path.find(':');
    const std::string_view folder = path.substr(0, end);
    if (folder.starts_with('/')) candidates.push_back(std::string(folder) + "/loaderd");
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
  }
  for (const std::string& candidate : candidates) {
    if (IsExecutable(candidate)) {
      *executable = candidate;
      return Ok();
    }
  }
  return Error(LOADERD_NOT_FOUND, "no daemon runs and no executable loaderd was found beside " +
                                      Printable(library) +
                                      " or in PATH; install it, or name it by LOADERD_DAEMON");
}

Status ConnectOrStart(const Options& options, const std::string& socket, Patience* patience,
                      std::unique_ptr<GuardedFd>* fd) {
  int error = 0;
  Status status = Connect(socket, patience, fd, &error);
  const auto nobody = [&error] { return error == ENOENT || error == ECONNREFUSED; };
  if (status.ok() || !nobody() || options.no_start) return status;
  const std::string lock_path = socket.substr(0, socket.rfind('/')) + "/start.lock";
  const GuardedFd lock(
      [&] { return ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); });
  if (!lock.ok()) {
    return ErrnoError(LOADERD_UNAVAILABLE, "cannot open " + Printable(lock_path), lock.error());
  }
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return ErrnoError(LOADERD_UNAVAILABLE, "cannot lock " + Printable(lock_path), errno);
    }
    status = patience->Wait(
        -1, 0, "waiting for another process to start the daemon on " + Printable(socket),
        milliseconds(20));
    if (!status.ok()) return status;
  }
  // Whoever had the lock before may have started it.
  status = Connect(socket, patience, fd, &error);
  if (status.ok() || !nobody()) return status;
  return Start(options, socket, patience, fd);
}

}  // namespace loaderd::client
