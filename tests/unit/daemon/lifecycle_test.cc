// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/lifecycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <thread>
#include <utility>  // before Asio, which uses std::exchange without it

#include "absl/strings/str_cat.h"
#include "server/daemon/deadline.h"

namespace loaderd::daemon {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Stands for the service manager: NOTIFY_SOCKET and WATCHDOG_USEC.
class LifecycleTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "notify-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    const std::string path = folder_ + "/notify";
    socket_ = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    ::setenv("WATCHDOG_PID", absl::StrCat(::getpid()).c_str(), 1);
    ::setenv("WATCHDOG_USEC", "100000", 1);
  }
  void TearDown() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"}) ::unsetenv(name);
    std::filesystem::remove_all(folder_);
  }
  // The next message within `limit`, or "".
  std::string Told(milliseconds limit = milliseconds(5000)) {
    pollfd ready = {socket_.get(), POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(limit.count())) != 1) return "";
    char text[4096];
    const ssize_t size = ::recv(socket_.get(), text, sizeof(text), 0);
    return std::string(text, size > 0 ? static_cast<size_t>(size) : 0);
  }

  std::string folder_;
  UniqueFd socket_;
};

// A loop on a thread of its own.
class Loop {
 public:
  Loop() : thread_([this] { io_.run(); }) {}
  ~Loop() {
    guard_.reset();
    io_.stop();
    thread_.join();
  }
  boost::asio::io_context& io() { return io_; }
  // Runs `work` on the loop and waits for it.
  void Do(std::function<void()> work) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

 private:
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{
      io_.get_executor()};
  std::thread thread_;
};

TEST_F(LifecycleTest, EachEventIsToldInTheManagersWords) {
  notify::Ready();
  EXPECT_EQ(Told(), "READY=1");
  notify::StatusText("serving");
  EXPECT_EQ(Told(), "STATUS=serving");
  notify::Reloading();
  EXPECT_THAT(Told(), HasSubstr("RELOADING=1\nMONOTONIC_USEC="));
  notify::Stopping(milliseconds(10000));
  EXPECT_THAT(Told(),
              testing::AllOf(HasSubstr("STOPPING=1"), HasSubstr("EXTEND_TIMEOUT_USEC=15000000")));
  EXPECT_THAT(Told(), HasSubstr("WATCHDOG_USEC=15000000"));
}

TEST_F(LifecycleTest, WatchdogIsAnsweredAgainAndAgainWhileHealthy) {
  Loop loop;
  std::optional<Watchdog> watchdog;
  loop.Do([&] { watchdog.emplace(loop.io(), [] { return true; }); });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Told(), "WATCHDOG=1");
  loop.Do([&] { watchdog.reset(); });
}

TEST_F(LifecycleTest, StuckHealthCheckIsNotAnswered) {
  Loop loop;
  std::atomic<bool> stuck = true;
  std::optional<Watchdog> watchdog;
  loop.Do([&] {
    watchdog.emplace(loop.io(), [&] {
      stuck.wait(true);
      return true;
    });
  });
  EXPECT_EQ(Told(milliseconds(300)), "");
  stuck = false;
  stuck.notify_all();
  EXPECT_EQ(Told(), "WATCHDOG=1");
  loop.Do([&] { watchdog.reset(); });
}

TEST_F(LifecycleTest, FailedHealthCheckIsNotAnswered) {
  Loop loop;
  std::atomic<int> asked = 0;
  std::optional<Watchdog> watchdog;
  loop.Do([&] {
    watchdog.emplace(loop.io(), [&] {
      ++asked;
      return false;
    });
  });
  EXPECT_EQ(Told(milliseconds(300)), "");
  EXPECT_GE(asked, 2);
  loop.Do([&] { watchdog.reset(); });
}

TEST_F(LifecycleTest, StuckLoopIsNotAnswered) {
  Loop loop;
  std::atomic<int> asked = 0;
  std::optional<Watchdog> watchdog;
  loop.Do([&] {
    watchdog.emplace(loop.io(), [&] {
      ++asked;
      return true;
    });
    std::this_thread::sleep_for(milliseconds(300));
  });
  EXPECT_GE(asked, 1) << "the check came back, and yet nothing was told while the loop was held";
  EXPECT_EQ(Told(), "WATCHDOG=1");
  loop.Do([&] { watchdog.reset(); });
}

TEST_F(LifecycleTest, WithoutAWatchdogNothingIsAsked) {
  ::unsetenv("WATCHDOG_USEC");
  Loop loop;
  std::atomic<int> asked = 0;
  std::optional<Watchdog> watchdog;
  loop.Do([&] { watchdog.emplace(loop.io(), [&] { return ++asked > 0; }); });
  EXPECT_EQ(Told(milliseconds(200)), "");
  EXPECT_EQ(asked, 0);
  loop.Do([&] { watchdog.reset(); });
}

TEST(PassedDescriptorsTest, AnotherProcesssDescriptorsAreNotTaken) {
  ::setenv("LISTEN_PID", "1", 1);
  ::setenv("LISTEN_FDS", "2", 1);
  const auto passed = TakePassedDescriptors();
  ASSERT_TRUE(passed.ok());
  EXPECT_TRUE(passed->empty());
  EXPECT_EQ(::getenv("LISTEN_FDS"), nullptr);
}

TEST(PassedDescriptorsTest, ClosedDescriptorIsAnError) {
  ::setenv("LISTEN_PID", absl::StrCat(::getpid()).c_str(), 1);
  ::setenv("LISTEN_FDS", "900", 1);
  const Status status = TakePassedDescriptors().status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("LISTEN_FDS"));
}

TEST(DeadlineTest, PassesOnceWhenNotEndedBefore) {
  std::promise<void> passed;
  const Deadline deadline(milliseconds(10), [&] { passed.set_value(); });
  EXPECT_EQ(passed.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST(DeadlineTest, EndedInTimeDoesNothing) {
  std::atomic<bool> passed = false;
  {
    const Deadline deadline(std::chrono::hours(1), [&] { passed = true; });
  }
  EXPECT_FALSE(passed);
}

}  // namespace
}  // namespace loaderd::daemon
