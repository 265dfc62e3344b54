// SPDX-License-Identifier: Apache-2.0
// Which daemon a client goes to, and what it says of places where there is none.
#include "client/cpp/src/locate.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "client/cpp/src/fork_guard.h"
#include "client/cpp/src/unix_socket.h"
#include "tests/unit/client/environment.h"
#include "tests/unit/client/session_fixture.h"

namespace loaderd::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

class LocateTest : public SessionFixture {
 protected:
  LocateTest() { log_.clear(); }

  loaderd_code OpenAt(const char* socket, int64_t timeout_ms = 5000) {
    loaderd_open_options options = OpenOptions();
    options.socket = socket;
    options.timeout_ms = timeout_ms;
    const auto begin = steady_clock::now();
    const loaderd_code code = loaderd_open("{}", &options, &session_);
    EXPECT_LT(steady_clock::now() - begin, milliseconds(1000));
    return code;
  }

  // What an unprivileged user meets; the test itself may run as root. Exits with 0 when `body`
  // holds.
  static void AsNobody(const std::function<bool()>& body) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    const pid_t child = ::fork();
    if (child == 0) {
      const bool ok = ::setgid(65534) == 0 && ::setuid(65534) == 0 && body();
      ::_exit(ok ? 0 : 1);
    }
    int how = 0;
    ::waitpid(child, &how, 0);
    EXPECT_EQ(how, 0);
  }

  ScopedVariable socket_variable_{"LOADERD_SOCKET", nullptr};
  ScopedVariable system_variable_{"LOADERD_SYSTEM_SOCKET", folder_ / "no-system.sock"};
  ScopedVariable runtime_variable_{"XDG_RUNTIME_DIR", folder_.path()};
};

TEST_F(LocateTest, PathsTakeTheUnixPrefixes) {
  for (const char* const given : {"/run/x.sock", "unix:/run/x.sock", "unix:///run/x.sock"}) {
    std::string path;
    EXPECT_TRUE(ParseSocketPath(given, "test", &path).ok()) << given;
    EXPECT_EQ(path, "/run/x.sock");
  }
  EXPECT_EQ(SegmentSocketPath("/run/x.sock"), "/run/x-segment.sock");
  EXPECT_EQ(SegmentSocketPath("/run/x"), "/run/x-segment");
}

TEST_F(LocateTest, PathsThatCannotBeSayWhy) {
  EXPECT_EQ(OpenAt(""), LOADERD_INVALID_ARGUMENT);
  EXPECT_THAT(loaderd_error(), HasSubstr("is empty"));
  EXPECT_EQ(OpenAt("unix:"), LOADERD_INVALID_ARGUMENT);
  EXPECT_EQ(OpenAt("loaderd.sock"), LOADERD_INVALID_ARGUMENT);
  EXPECT_THAT(loaderd_error(), AllOf(HasSubstr("loaderd.sock"), HasSubstr("not absolute")));
  EXPECT_EQ(OpenAt("/tmp/"), LOADERD_INVALID_ARGUMENT);
  EXPECT_THAT(loaderd_error(), HasSubstr("names a folder"));
}

TEST_F(LocateTest, TooLongPathNamesLengthLimitAndCure) {
  const std::string longer = "/tmp/" + std::string(103, 'x');
  EXPECT_EQ(OpenAt(longer.c_str()), LOADERD_INVALID_ARGUMENT);
  EXPECT_THAT(loaderd_error(), AllOf(HasSubstr(longer), HasSubstr("107"), HasSubstr("shorter")));
  // 100 bytes are a path, but the segment socket's name would have 108.
  const std::string sibling = "/tmp/" + std::string(90, 'x') + ".sock";
  ASSERT_EQ(sibling.size(), 100u);
  EXPECT_EQ(OpenAt(sibling.c_str()), LOADERD_INVALID_ARGUMENT);
  EXPECT_THAT(loaderd_error(), AllOf(HasSubstr("segment socket"), HasSubstr("108 bytes")));
  const std::string fits = "/tmp/" + std::string(89, 'x') + ".sock";
  EXPECT_EQ(OpenAt(fits.c_str()), LOADERD_UNAVAILABLE);
}

TEST_F(LocateTest, MissingSocketSaysHowToStartADaemon) {
  EXPECT_EQ(OpenAt((folder_ / "none.sock").c_str()), LOADERD_UNAVAILABLE);
  EXPECT_THAT(loaderd_error(), AllOf(HasSubstr(folder_ / "none.sock"), HasSubstr("nothing exists"),
                                     HasSubstr("loaderd --user --socket")));
}

TEST_F(LocateTest, FileThatIsNoSocketIsNamedSo) {
  std::ofstream(folder_ / "file.sock") << "x";
  EXPECT_EQ(OpenAt((folder_ / "file.sock").c_str()), LOADERD_UNAVAILABLE);
  EXPECT_THAT(loaderd_error(), HasSubstr("is not a socket"));
  EXPECT_EQ(OpenAt((folder_ / "file.sock/x.sock").c_str()), LOADERD_UNAVAILABLE);
  EXPECT_THAT(loaderd_error(), HasSubstr("not a folder"));
}

TEST_F(LocateTest, SocketOfADeadDaemonIsNamedSo) {
  ::close(ListenAt(folder_ / "stale.sock"));
  EXPECT_EQ(OpenAt((folder_ / "stale.sock").c_str()), LOADERD_UNAVAILABLE);
  EXPECT_THAT(loaderd_error(), AllOf(HasSubstr("nobody listens"), HasSubstr("start it again")));
}

TEST_F(LocateTest, SocketWithoutRightNamesTheGroup) {
  StartDaemon();
  ASSERT_EQ(::chmod((folder_ / "d.sock").c_str(), 0660), 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  const std::string socket = folder_ / "d.sock";
  AsNobody([&] {
    return OpenAt(socket.c_str()) == LOADERD_PERMISSION_DENIED &&
           std::string(loaderd_error()).find("its group is root") != std::string::npos;
  });
}

TEST_F(LocateTest, ClosedFolderOfTheSystemsDaemonIsAnErrorNotAnotherDaemon) {
  StartDaemon();
  const std::string system = folder_ / "d.sock";
  const ScopedVariable variable("LOADERD_SYSTEM_SOCKET", system);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0750), 0);
  AsNobody([&] {
    return OpenAt(nullptr) == LOADERD_PERMISSION_DENIED &&
           std::string(loaderd_error()).find("its group is root") != std::string::npos;
  });
}

TEST_F(LocateTest, EnvironmentNamesTheDaemonUnlessTheOptionsDo) {
  StartDaemon();
  const ScopedVariable variable("LOADERD_SOCKET", folder_ / "d.sock");
  ASSERT_EQ(OpenAt(nullptr), LOADERD_OK) << loaderd_error();
  loaderd_close(std::exchange(session_, nullptr));
  EXPECT_EQ(OpenAt((folder_ / "none.sock").c_str()), LOADERD_UNAVAILABLE);
  const ScopedVariable wrong("LOADERD_SOCKET", "relative");
  EXPECT_EQ(OpenAt(nullptr), LOADERD_INVALID_ARGUMENT);
  EXPECT_THAT(loaderd_error(), HasSubstr("LOADERD_SOCKET"));
}

TEST_F(LocateTest, SystemsDaemonComesBeforeTheUsers) {
  StartDaemon();
  ASSERT_EQ(::mkdir((folder_ / "loaderd").c_str(), 0700), 0);
  FakeDaemon users(folder_ / "loaderd/loaderd.sock", {});
  {
    const ScopedVariable variable("LOADERD_SYSTEM_SOCKET", folder_ / "d.sock");
    ASSERT_EQ(OpenAt(nullptr), LOADERD_OK) << loaderd_error();
    EXPECT_EQ(loaderd_opened_of(session_)->socket, folder_ / "d.sock");
    loaderd_close(std::exchange(session_, nullptr));
  }
  ASSERT_EQ(OpenAt(nullptr), LOADERD_OK) << loaderd_error();
  EXPECT_EQ(loaderd_opened_of(session_)->socket, folder_ / "loaderd/loaderd.sock");
  EXPECT_THAT(log_, testing::IsEmpty());
  loaderd_close(std::exchange(session_, nullptr));
}

TEST_F(LocateTest, JobThatTheSystemsDaemonRefusesGoesToTheUsers) {
  for (const char* const status : {"7", "12"}) {
    log_.clear();
    FakeDaemon::Options options;
    options.on_open = [&](PeerConnection& peer, const said::Request&) {
      peer.Finish(status, "not under roots");
      return true;
    };
    StartDaemon(std::move(options));
    ::mkdir((folder_ / "loaderd").c_str(), 0700);
    FakeDaemon users(folder_ / "loaderd/loaderd.sock", {});
    const ScopedVariable variable("LOADERD_SYSTEM_SOCKET", folder_ / "d.sock");
    ASSERT_EQ(OpenAt(nullptr), LOADERD_OK) << loaderd_error();
    EXPECT_EQ(loaderd_opened_of(session_)->socket, folder_ / "loaderd/loaderd.sock");
    EXPECT_THAT(log_, testing::ElementsAre(
                          AllOf(HasSubstr("not under roots"), HasSubstr("loaderd/loaderd.sock"))));
    loaderd_close(std::exchange(session_, nullptr));
    // Named by the user, the refusal is the answer.
    EXPECT_EQ(OpenAt((folder_ / "d.sock").c_str()),
              status[0] == '7' ? LOADERD_PERMISSION_DENIED : LOADERD_UNIMPLEMENTED);
    daemon_.reset();
  }
}

TEST_F(LocateTest, OtherRefusalsOfTheSystemsDaemonStand) {
  FakeDaemon::Options options;
  options.on_open = [&](PeerConnection& peer, const said::Request&) {
    peer.Finish("3", "batch_size: wrong");
    return true;
  };
  StartDaemon(std::move(options));
  const ScopedVariable variable("LOADERD_SYSTEM_SOCKET", folder_ / "d.sock");
  EXPECT_EQ(OpenAt(nullptr), LOADERD_INVALID_ARGUMENT);
}

// The daemon of another mount namespace is known by the lock that it holds.
class ElsewhereTest : public LocateTest {
 protected:
  ElsewhereTest() {
    ::mkdir((folder_ / "loaderd").c_str(), 0700);
    there_ = std::make_unique<FakeDaemon>(folder_ / "loaderd/loaderd.sock", FakeDaemon::Options());
    std::string number = here_.substr(5);
    number.pop_back();
    private_ = "loaderd-" + number;
  }
  // The lock beside the user's socket, held while the result lives.
  std::unique_ptr<GuardedFd> Lock(const std::string& text) {
    const std::string path = folder_ / "loaderd/loaderd.lock";
    std::ofstream(path) << text;
    auto lock = std::make_unique<GuardedFd>([&] { return ::open(path.c_str(), O_RDWR); });
    EXPECT_EQ(::flock(lock->get(), LOCK_EX | LOCK_NB), 0);
    return lock;
  }
  std::string ServedAt() {
    const loaderd_code code = OpenAt(nullptr);
    EXPECT_EQ(code, LOADERD_OK) << loaderd_error();
    if (code != LOADERD_OK) return {};
    const std::string socket = loaderd_opened_of(session_)->socket;
    loaderd_close(std::exchange(session_, nullptr));
    return socket.substr(folder_.path().size() + 1);
  }

  const std::string here_ = std::filesystem::read_symlink("/proc/self/ns/mnt");
  std::string private_;
  std::unique_ptr<FakeDaemon> there_;
};

TEST_F(ElsewhereTest, DaemonOfThisNamespaceOrOneThatDoesNotSayIsUsed) {
  EXPECT_EQ(ServedAt(), "loaderd/loaderd.sock");  // no lock, as under socket activation
  for (const std::string& text : {"12\n" + here_ + "\n", std::string("12\n"), std::string()}) {
    const auto lock = Lock(text);
    EXPECT_EQ(ServedAt(), "loaderd/loaderd.sock") << text;
  }
  Lock("12\nmnt:[1]\n");  // of a dead daemon
  EXPECT_EQ(ServedAt(), "loaderd/loaderd.sock");
  EXPECT_THAT(log_, testing::IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / private_));
}

TEST_F(ElsewhereTest, DaemonOfAnotherNamespaceIsLeftAloneForAFolderWithASuffix) {
  const auto lock = Lock("12\nmnt:[1]\n");
  EXPECT_EQ(OpenAt(nullptr), LOADERD_UNAVAILABLE);  // nothing is started in this test
  EXPECT_THAT(loaderd_error(), HasSubstr(private_ + "/loaderd.sock"));
  struct stat facts;
  ASSERT_EQ(::stat((folder_ / private_).c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
  log_.clear();
  FakeDaemon own(folder_ / (private_ + "/loaderd.sock"), {});
  EXPECT_EQ(ServedAt(), private_ + "/loaderd.sock");
  EXPECT_THAT(log_, testing::ElementsAre(AllOf(HasSubstr("another mount namespace"),
                                               HasSubstr("loaderd/loaderd.sock"),
                                               HasSubstr(private_ + "/loaderd.sock"))));
  EXPECT_THAT(there_->Heard(), testing::IsEmpty());
  // Whoever names it gets it.
  const std::string named = folder_ / "loaderd/loaderd.sock";
  ASSERT_EQ(OpenAt(named.c_str()), LOADERD_OK) << loaderd_error();
  loaderd_close(std::exchange(session_, nullptr));
}

TEST_F(LocateTest, UsersFolderIsMadePrivate) {
  Place place;
  ASSERT_TRUE(LocateUser(&place).ok());
  EXPECT_EQ(place.socket, folder_ / "loaderd/loaderd.sock");
  EXPECT_EQ(place.origin, Origin::kUser);
  struct stat facts;
  ASSERT_EQ(::stat((folder_ / "loaderd").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
}

TEST_F(LocateTest, FolderThatOthersControlIsRefused) {
  const std::string folder = folder_ / "loaderd";
  Place place;
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0770), 0);
  EXPECT_THAT(LocateUser(&place).text, AllOf(HasSubstr(folder), HasSubstr("mode 0770")));
  ASSERT_EQ(::rmdir(folder.c_str()), 0);
  ASSERT_EQ(::mkdir((folder_ / "elsewhere").c_str(), 0700), 0);
  ASSERT_EQ(::symlink((folder_ / "elsewhere").c_str(), folder.c_str()), 0);
  EXPECT_THAT(LocateUser(&place).text, HasSubstr("symbolic link"));
  ASSERT_EQ(::unlink(folder.c_str()), 0);
  std::ofstream(folder) << "x";
  EXPECT_THAT(LocateUser(&place).text, HasSubstr("not a folder"));
}

TEST_F(LocateTest, RuntimeFolderOfAnotherUserIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a folder away";
  ASSERT_EQ(::chown(folder_.path().c_str(), 65534, 65534), 0);
  Place place;
  (void)LocateUser(&place);
  EXPECT_THAT(place.socket, testing::Not(HasSubstr(folder_.path())));
  ASSERT_EQ(::chown(folder_.path().c_str(), 0, 0), 0);
}

TEST_F(LocateTest, NoDescriptorsLeftIsSaidSo) {
  const std::string socket = folder_ / "none.sock";
  loaderd_open_options options = OpenOptions();
  options.socket = socket.c_str();
  loaderd_session** const session = &session_;
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  struct rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  // Nothing but this in between: a sanitizer's own checks take descriptors too.
  const loaderd_code code = loaderd_open("{}", &options, session);
  const std::string text = loaderd_error();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(code, LOADERD_RESOURCE_EXHAUSTED);
  EXPECT_THAT(text, HasSubstr("ulimit -n"));
}

}  // namespace
}  // namespace loaderd::client
