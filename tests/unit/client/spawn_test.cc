// SPDX-License-Identifier: Apache-2.0
// Starting the user's daemon. The executable is a script that writes down how it was started; where
// a daemon is to answer, the test listens in its place.
#include "client/cpp/src/spawn.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/unit/client/environment.h"
#include "tests/unit/client/session_fixture.h"

namespace loaderd::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class SpawnTest : public SessionFixture {
 protected:
  SpawnTest() { log_.clear(); }
  ~SpawnTest() override {
    done_ = true;
    if (stand_in_.joinable()) stand_in_.join();
  }

  // An executable named loaderd with this shell text.
  void Executable(const std::string& text) {
    const std::string path = folder_ / "loaderd.sh";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }
  // Shell text that leaves a process behind, which has the log open as a daemon has, for as long as
  // the test's folder is there.
  std::string LeaveDaemon() {
    return "\n(i=0; while [ -d " + folder_.path() +
           " ] && [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done) &\ntouch " + (folder_ / "ran");
  }
  // A daemon that comes up on the user's socket once the executable has run.
  void StandIn() {
    stand_in_ = std::thread([this] {
      while (!done_ && !std::filesystem::exists(folder_ / "ran")) {
        std::this_thread::sleep_for(milliseconds(5));
      }
      if (done_) return;
      std::this_thread::sleep_for(milliseconds(100));
      std::filesystem::remove(folder_ / "loaderd/loaderd.sock");
      daemon_ =
          std::make_unique<FakeDaemon>(folder_ / "loaderd/loaderd.sock", FakeDaemon::Options());
    });
  }
  std::string Read(const std::string& name) {
    std::ostringstream out;
    out << std::ifstream(folder_ / name).rdbuf();
    return out.str();
  }
  loaderd_code OpenUsers(int64_t timeout_ms = 10'000) {
    const std::string executable = folder_ / "loaderd.sh";
    loaderd_open_options options = OpenOptions();
    options.socket = nullptr;
    options.daemon = executable.c_str();
    options.no_start = no_start_;
    options.timeout_ms = timeout_ms;
    return loaderd_open("{}", &options, &session_);
  }
  void Settle() {
    loaderd_close(std::exchange(session_, nullptr));
    done_ = true;
    if (stand_in_.joinable()) stand_in_.join();
  }

  int no_start_ = 0;
  std::atomic<bool> done_{false};
  std::thread stand_in_;
  ScopedVariable socket_variable_{"LOADERD_SOCKET", nullptr};
  ScopedVariable system_variable_{"LOADERD_SYSTEM_SOCKET", folder_ / "no-system.sock"};
  ScopedVariable runtime_variable_{"XDG_RUNTIME_DIR", folder_.path()};
};

TEST_F(SpawnTest, DaemonIsStartedCleanAndIsNobodysChild) {
  const ScopedVariable preload("LD_LIBRARY_PATH", "/nowhere");
  const ScopedVariable python("PYTHONPATH", "/nowhere");
  const ScopedVariable kept("LOADERD_TEST_KEPT", "yes");
  Executable("echo \"$@\" > " + (folder_ / "arguments") + "\nenv > " + (folder_ / "environment") +
             "\nls -l /proc/$$/fd > " + (folder_ / "descriptors") + "\npwd > " + (folder_ / "cwd") +
             "\ncut -d' ' -f1,5,6 /proc/$$/stat > " + (folder_ / "session") +
             "\ngrep -E 'SigBlk|SigIgn' /proc/self/status > " + (folder_ / "signals") +
             "\necho hello >&2" + LeaveDaemon());
  StandIn();
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto ignored = ::signal(SIGHUP, SIG_IGN);
  ASSERT_EQ(OpenUsers(), LOADERD_OK) << loaderd_error();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGHUP, ignored);
  EXPECT_EQ(Read("arguments"),
            "--user --detach --socket " + (folder_ / "loaderd/loaderd.sock") + " --idle-exit 60\n");
  EXPECT_THAT(Read("environment"),
              AllOf(HasSubstr("XDG_RUNTIME_DIR=" + folder_.path() + "\n"),
                    HasSubstr("LOADERD_TEST_KEPT=yes"), Not(HasSubstr("LD_LIBRARY_PATH")),
                    Not(HasSubstr("PYTHONPATH"))));
  const std::string descriptors = Read("descriptors");
  EXPECT_THAT(descriptors, AllOf(HasSubstr("0 -> /dev/null"), HasSubstr("1 -> "),
                                 HasSubstr("2 -> " + (folder_ / "loaderd/loaderd.log")),
                                 Not(HasSubstr("socket:")), Not(HasSubstr("start.lock"))));
  EXPECT_EQ(Read("cwd"), "/\n");
  std::istringstream session(Read("session"));
  int pid = 0;
  int group = 0;
  int leader = 0;
  session >> pid >> group >> leader;
  EXPECT_EQ(group, pid);
  EXPECT_EQ(leader, pid) << "not a session of its own";
  // Signals 1 to 31; the two behind them are the C library's own.
  EXPECT_THAT(Read("signals"), AllOf(testing::ContainsRegex("SigBlk:\t0+\n"),
                                     testing::ContainsRegex("SigIgn:\t[0-9a-f]{8}[08]0000000\n")));
  EXPECT_THAT(Read("loaderd/loaderd.log"), HasSubstr("hello"));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was left";
  EXPECT_EQ(errno, ECHILD);
  EXPECT_THAT(log_, Contains(HasSubstr("started the user's daemon")));
  Settle();
}

TEST_F(SpawnTest, RunningDaemonIsNotStartedTwice) {
  Executable("touch " + (folder_ / "ran"));
  ASSERT_EQ(::mkdir((folder_ / "loaderd").c_str(), 0700), 0);
  FakeDaemon running(folder_ / "loaderd/loaderd.sock", {});
  ASSERT_EQ(OpenUsers(), LOADERD_OK) << loaderd_error();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "ran"));
  EXPECT_TRUE(log_.empty());
  Settle();
}

TEST_F(SpawnTest, SocketOfADeadDaemonMeansStartOne) {
  Executable(LeaveDaemon());
  ASSERT_EQ(::mkdir((folder_ / "loaderd").c_str(), 0700), 0);
  ::close(ListenAt(folder_ / "loaderd/loaderd.sock"));
  StandIn();
  ASSERT_EQ(OpenUsers(), LOADERD_OK) << loaderd_error();
  Settle();
}

TEST_F(SpawnTest, OfSeveralProcessesOneStartsIt) {
  Executable("echo x >> " + (folder_ / "starts") + LeaveDaemon());
  StandIn();
  std::vector<std::thread> opening;
  std::atomic<int> opened{0};
  for (int i = 0; i < 4; ++i) {
    opening.emplace_back([&] {
      const std::string executable = folder_ / "loaderd.sh";
      loaderd_open_options options = {};
      options.struct_size = sizeof options;
      options.daemon = executable.c_str();
      options.timeout_ms = 10'000;
      options.log = [](const char*) {};
      loaderd_session* session = nullptr;
      if (loaderd_open("{}", &options, &session) == LOADERD_OK) ++opened;
      loaderd_close(session);
    });
  }
  for (std::thread& thread : opening) thread.join();
  EXPECT_EQ(opened, 4);
  EXPECT_EQ(Read("starts"), "x\n");
  Settle();
}

TEST_F(SpawnTest, DaemonThatFailsAtOnceShowsItsLog) {
  Executable("echo 'config: line 3: no such field' >&2\nexit 3");
  const auto begin = steady_clock::now();
  EXPECT_EQ(OpenUsers(), LOADERD_UNAVAILABLE);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(3000));
  EXPECT_THAT(loaderd_error(),
              AllOf(HasSubstr("exit code 3"), HasSubstr("config: line 3: no such field"),
                    HasSubstr("loaderd.log")));
}

TEST_F(SpawnTest, DetachedDaemonThatDiesIsSeenAtOnce) {
  Executable("(sleep 0.3; echo 'cannot listen: no' >&2; exit 1) &\nexit 0");
  const auto begin = steady_clock::now();
  EXPECT_EQ(OpenUsers(20'000), LOADERD_UNAVAILABLE);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(5000));
  EXPECT_THAT(loaderd_error(),
              AllOf(HasSubstr("ended before it answered"), HasSubstr("cannot listen: no")));
}

TEST_F(SpawnTest, DaemonThatNeverAnswersIsGivenUpInTime) {
  Executable("(echo thinking >&2; exec sleep 3) &\nexit 0");
  const auto begin = steady_clock::now();
  EXPECT_EQ(OpenUsers(700), LOADERD_DEADLINE_EXCEEDED);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(2500));
  EXPECT_THAT(loaderd_error(), AllOf(HasSubstr("700 ms"), HasSubstr("thinking")));
}

TEST_F(SpawnTest, StarterThatDoesNotDetachIsKilledAtTheTimeLimit) {
  Executable("exec sleep 30");
  EXPECT_EQ(OpenUsers(300), LOADERD_DEADLINE_EXCEEDED);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was left";
}

TEST_F(SpawnTest, NothingIsStartedWhereThatIsNotWanted) {
  Executable("touch " + (folder_ / "ran"));
  no_start_ = 1;
  EXPECT_EQ(OpenUsers(), LOADERD_UNAVAILABLE);
  EXPECT_THAT(loaderd_error(), HasSubstr("nothing exists there"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "ran"));
}

TEST_F(SpawnTest, NamedExecutableMustBeOne) {
  Options options;
  options.daemon = "/etc/passwd";
  std::string executable;
  Status status = FindDaemon(options, &executable);
  EXPECT_EQ(status.code, LOADERD_NOT_FOUND);
  EXPECT_THAT(status.text, AllOf(HasSubstr("/etc/passwd"), HasSubstr("no executable")));
  options.daemon = "";
  const ScopedVariable variable("LOADERD_DAEMON", "/nowhere/loaderd");
  status = FindDaemon(options, &executable);
  EXPECT_THAT(status.text, AllOf(HasSubstr("/nowhere/loaderd"), HasSubstr("LOADERD_DAEMON")));
}

}  // namespace
}  // namespace loaderd::client
