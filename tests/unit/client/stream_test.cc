// SPDX-License-Identifier: Apache-2.0
// Sessions that go on where a daemon has gone, by the C interface.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/client/session_fixture.h"

namespace loaderd::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class StreamTest : public SessionFixture {
 protected:
  StreamTest() {
    log_.clear();
    reconnect_ms_ = 10'000;
  }

  // And takes what it had sent before: until there is a wait.
  void EndDaemon() {
    daemon_.reset();
    const loaderd_batch* batch = nullptr;
    while (loaderd_next(session_, 50, &batch) == LOADERD_OK) {
      EXPECT_EQ(batch->step, next_++);
      loaderd_release(batch);
    }
  }
  uint64_t NextStep() {
    const loaderd_batch* batch = Next();
    if (batch == nullptr) return UINT64_MAX;
    const uint64_t step = batch->step;
    EXPECT_EQ(static_cast<const uint8_t*>(batch->data)[0], step + 1);
    loaderd_release(batch);
    next_ = step + 1;
    return step;
  }

  uint64_t next_ = 0;
};

TEST_F(StreamTest, GoesOnWithTheNextBatchOfANewDaemon) {
  Begin();
  for (uint64_t step = 0; step < 3; ++step) EXPECT_EQ(NextStep(), step);
  EndDaemon();
  const std::string from = std::to_string(next_);
  StartDaemon();
  while (next_ < 10) {
    const uint64_t step = next_;
    ASSERT_EQ(NextStep(), step);
  }
  EXPECT_EQ(NextCode(), LOADERD_END_OF_EPOCH);
  EXPECT_THAT(daemon_->Heard(), Contains("start 1 epoch 0 from " + from));
  EXPECT_EQ(daemon_->last_open().json, R"({"batch_size": 4})");
  EXPECT_EQ(daemon_->last_open().expected_order_fingerprint, "order-fingerprint");
  EXPECT_THAT(log_, ElementsAre(HasSubstr("waiting up to 10.0 s"), HasSubstr("goes on after")));
}

TEST_F(StreamTest, HeldBatchesStayAndCostNoDescriptor) {
  const int before = OpenDescriptors();
  Begin();
  const loaderd_batch* held = Next();
  next_ = 1;
  EndDaemon();
  EXPECT_EQ(OpenDescriptors(), before) << "the connection's is closed at once";
  StartDaemon();
  const loaderd_batch* other = Next();
  EXPECT_EQ(static_cast<const uint8_t*>(held->data)[0], 1);
  EXPECT_EQ(static_cast<const uint8_t*>(other->data)[0], next_ + 1);
  loaderd_release(held);
  EXPECT_THAT(daemon_->Heard(), Each(Not(HasSubstr("release"))))
      << "the old session's slots are nothing to the new daemon";
  loaderd_release(other);
  EXPECT_TRUE(daemon_->HeardWithin("release 0", kSoon) || daemon_->HeardWithin("release 3", kSoon));
  loaderd_close(session_);
  session_ = nullptr;
  EndDaemon();
  EXPECT_EQ(DescriptorsOnceThey(before), before);
}

TEST_F(StreamTest, AnEpochThatIsStartedWhileTheDaemonIsGoneBeginsAtTheNext) {
  Begin();
  NextStep();
  EndDaemon();
  ASSERT_EQ(loaderd_start_epoch(session_, 5, 2, 0), LOADERD_OK) << loaderd_error();
  StartDaemon();
  EXPECT_EQ(NextStep(), 2u);
  EXPECT_THAT(daemon_->Heard(), Contains("start 1 epoch 5 from 2"));
}

TEST_F(StreamTest, IndicesAreSentAgainFromTheNextBatchOn) {
  Begin();
  for (int64_t batch = 0; batch < 5; ++batch) {
    const int64_t indices[] = {2 * batch, 2 * batch + 1};
    ASSERT_EQ(loaderd_send_indices(session_, static_cast<uint64_t>(batch), indices, 2), LOADERD_OK);
  }
  NextStep();
  EndDaemon();
  const uint64_t from = next_;
  ASSERT_LT(from, 5u);
  const int64_t later[] = {10, 11};
  ASSERT_EQ(loaderd_send_indices(session_, 5, later, 2), LOADERD_OK);
  ASSERT_EQ(loaderd_end_indices(session_), LOADERD_OK);
  StartDaemon();
  EXPECT_EQ(NextStep(), from);
  const auto line = [](uint64_t batch) {
    return "indices 1/" + std::to_string(batch) + " " + std::to_string(2 * batch) + "," +
           std::to_string(2 * batch + 1) + " last";
  };
  for (uint64_t batch = from; batch <= 5; ++batch) {
    EXPECT_TRUE(daemon_->HeardWithin(line(batch), kSoon)) << line(batch);
  }
  EXPECT_THAT(daemon_->Heard(), Not(Contains(line(from - 1))));
  EXPECT_THAT(daemon_->Heard(), Contains(HasSubstr("end")));
}

TEST_F(StreamTest, TheWaitHasALimitAndNamesTheSocket) {
  reconnect_ms_ = 300;
  Begin();
  EndDaemon();
  const auto begin = steady_clock::now();
  EXPECT_EQ(NextCode(-1), LOADERD_UNAVAILABLE);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(150));
  EXPECT_THAT(loaderd_error(), HasSubstr(folder_ / "d.sock"));
  EXPECT_THAT(loaderd_error(), HasSubstr("within 300 ms"));
  EXPECT_EQ(NextCode(), LOADERD_UNAVAILABLE) << "and it stays so";
}

TEST_F(StreamTest, NextsOwnTimeHoldsMeanwhile) {
  Begin();
  EndDaemon();
  for (int i = 0; i < 3; ++i) {
    const auto begin = steady_clock::now();
    EXPECT_EQ(NextCode(100), LOADERD_DEADLINE_EXCEEDED);
    EXPECT_LT(steady_clock::now() - begin, milliseconds(5000));
  }
  EXPECT_EQ(NextCode(0), LOADERD_DEADLINE_EXCEEDED);
  const uint64_t step = next_;
  StartDaemon();
  EXPECT_EQ(NextStep(), step);
}

TEST_F(StreamTest, ADaemonThatMakesOtherBatchesIsRefused) {
  Begin();
  NextStep();
  EndDaemon();
  FakeDaemon::Options other;
  other.opened.num_batches = 11;
  StartDaemon(std::move(other));
  EXPECT_EQ(NextCode(), LOADERD_FAILED_PRECONDITION);
  EXPECT_THAT(loaderd_error(), HasSubstr("other batches"));
}

TEST_F(StreamTest, ADaemonThatRefusesForGoodEndsIt) {
  Begin();
  NextStep();
  EndDaemon();
  FakeDaemon::Options refusing;
  refusing.on_open = [](PeerConnection& peer, const said::Request&) {
    peer.Finish("9", "the order is another one");
    return true;
  };
  StartDaemon(std::move(refusing));
  EXPECT_EQ(NextCode(), LOADERD_FAILED_PRECONDITION);
  EXPECT_THAT(loaderd_error(), HasSubstr("another one"));
}

TEST_F(StreamTest, ADaemonWithoutRoomYetIsAskedAgain) {
  Begin();
  NextStep();
  EndDaemon();
  auto refusals = std::make_shared<std::atomic<int>>(0);
  FakeDaemon::Options full;
  full.on_open = [refusals](PeerConnection& peer, const said::Request&) {
    if (refusals->fetch_add(1) >= 3) return false;
    peer.Finish("8", "sessions: none left");
    return true;
  };
  const uint64_t step = next_;
  StartDaemon(std::move(full));
  EXPECT_EQ(NextStep(), step);
  EXPECT_EQ(*refusals, 4);
}

TEST_F(StreamTest, ADaemonThatDiesOfTheJobEachTimeIsNotWaitedForWithoutEnd) {
  reconnect_ms_ = 700;
  Begin();
  NextStep();
  EndDaemon();
  FakeDaemon::Options dying;
  dying.deliver = [](FakeDaemon&, PeerConnection& peer, uint64_t, uint64_t) {
    peer.Close();
    return true;
  };
  StartDaemon(std::move(dying));
  EXPECT_EQ(NextCode(-1), LOADERD_UNAVAILABLE);
  EXPECT_THAT(loaderd_error(), HasSubstr("within 700 ms"));
  EXPECT_GT(daemon_->connections(), 1);
}

TEST_F(StreamTest, CloseEndsAWaitForADaemon) {
  Begin();
  EndDaemon();
  std::thread closer([this] {
    std::this_thread::sleep_for(milliseconds(100));
    loaderd_close(session_);
  });
  const loaderd_batch* batch = nullptr;
  EXPECT_EQ(loaderd_next(session_, -1, &batch), LOADERD_CANCELLED);
  closer.join();
  session_ = nullptr;
}

TEST_F(StreamTest, ADaemonThatAnswersNoPingIsTold) {
  reconnect_ms_ = 200;
  FakeDaemon::Options silent;
  silent.hold_batches = true;
  silent.http2.answers_pings = false;
  Begin(std::move(silent));
  EXPECT_EQ(NextCode(-1), LOADERD_UNAVAILABLE);
  EXPECT_THAT(loaderd_error(), HasSubstr("has not answered for"));
}

TEST_F(StreamTest, ADaemonThatAnswersPingsIsWaitedFor) {
  reconnect_ms_ = 200;
  FakeDaemon::Options slow;
  slow.hold_batches = true;
  Begin(std::move(slow));
  EXPECT_EQ(NextCode(6'500), LOADERD_DEADLINE_EXCEEDED);
  daemon_->LetGo();
  EXPECT_EQ(NextStep(), 0u);
}

}  // namespace
}  // namespace loaderd::client
