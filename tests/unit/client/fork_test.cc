// SPDX-License-Identifier: Apache-2.0
// What a forked child may do with its parent's session: read batches, and nothing else.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/unit/client/session_fixture.h"

namespace loaderd::client {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ForkTest : public SessionFixture {
 protected:
  // Runs `body` in a child and returns how it ended: 0 when it returned true.
  static int InChild(const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body() ? 0 : 1);
    int how = 0;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    return how;
  }
};

TEST_F(ForkTest, ChildGetsClearErrorsAndReadsItsBatches) {
  Begin();
  const loaderd_batch* const batch = Next();
  EXPECT_EQ(InChild([&] {
              const loaderd_batch* next = nullptr;
              const int64_t index = 1;
              if (loaderd_next(session_, -1, &next) != LOADERD_FORKED) return false;
              if (std::strstr(loaderd_error(), "forked") == nullptr) return false;
              if (loaderd_start_epoch(session_, 1, 0, 0) != LOADERD_FORKED) return false;
              if (loaderd_send_indices(session_, 0, &index, 1) != LOADERD_FORKED) return false;
              if (std::strcmp(loaderd_opened_of(session_)->session, "s-1") != 0) return false;
              const bool readable = static_cast<uint8_t*>(batch->data)[3999] == 1;
              loaderd_release(batch);
              loaderd_close(session_);
              return readable && static_cast<uint8_t*>(batch->data)[3999] == 1;
            }),
            0);
  // The parent's session has noticed nothing.
  loaderd_release(Next());
  EXPECT_TRUE(daemon_->HeardWithin("release 1", kSoon));
  EXPECT_THAT(daemon_->Heard(), Not(Contains("release 0")));
  loaderd_release(batch);
}

TEST_F(ForkTest, ChildHoldsNoDescriptorOfTheSession) {
  StartDaemon();
  const int before = OpenDescriptors();
  ASSERT_EQ(Open(), LOADERD_OK) << loaderd_error();
  EXPECT_EQ(DescriptorsOnceThey(before + 2), before + 2);
  // One of the two is the fake daemon's end.
  EXPECT_EQ(InChild([&] { return OpenDescriptors() == before + 1; }), 0);
}

TEST_F(ForkTest, LivingChildKeepsNothingAlive) {
  Begin();
  const loaderd_batch* const batch = Next();
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  loaderd_release(batch);
  loaderd_close(std::exchange(session_, nullptr));
  EXPECT_TRUE(daemon_->EndsWithin(kSoon));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(ForkTest, ChildMayOpenASessionOfItsOwn) {
  Begin();
  loaderd_release(Next());
  EXPECT_EQ(InChild([&] {
              loaderd_session* own = nullptr;
              const loaderd_open_options options = OpenOptions();
              if (loaderd_open("{}", &options, &own) != LOADERD_OK) return false;
              const loaderd_batch* batch = nullptr;
              if (loaderd_start_epoch(own, 3, 0, 0) != LOADERD_OK) return false;
              if (loaderd_next(own, 5000, &batch) != LOADERD_OK || batch->epoch != 3) return false;
              loaderd_release(batch);
              loaderd_close(own);
              return true;
            }),
            0);
}

TEST_F(ForkTest, ForkWhileOthersAreInsideCallsLeavesTheChildUsable) {
  FakeDaemon::Options options;
  options.opened.num_batches = 1u << 30;
  Begin(std::move(options));
  std::atomic<bool> done{false};
  std::thread reading([&] {
    while (!done) {
      const loaderd_batch* batch = nullptr;
      ASSERT_EQ(loaderd_next(session_, 5000, &batch), LOADERD_OK) << loaderd_error();
      loaderd_release(batch);
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(InChild([&] {
                ::alarm(10);  // a child that hangs on a lock dies
                const loaderd_batch* batch = nullptr;
                return loaderd_next(session_, -1, &batch) == LOADERD_FORKED;
              }),
              0);
  }
  done = true;
  reading.join();
}

TEST_F(ForkTest, ForkInsideOpensCallbackIsSeenByTheChild) {
  FakeDaemon::Options options;
  options.on_open = [](PeerConnection& peer, const said::Request&) { return peer.WaitForEnd(); };
  StartDaemon(std::move(options));
  loaderd_open_options options_c = OpenOptions();
  options_c.timeout_ms = 1000;
  const pid_t parent = ::getpid();
  static pid_t child;
  child = 0;
  options_c.waiting = [](void*, const char*) {
    if (child == 0) child = ::fork();
    return 0;
  };
  const loaderd_code code = loaderd_open("{}", &options_c, &session_);
  if (::getpid() != parent) ::_exit(code == LOADERD_FORKED ? 0 : 1);
  EXPECT_EQ(code, LOADERD_DEADLINE_EXCEEDED);
  int how = 1;
  ::waitpid(child, &how, 0);
  EXPECT_EQ(how, 0);
}

}  // namespace
}  // namespace loaderd::client
