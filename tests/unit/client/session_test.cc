// SPDX-License-Identifier: Apache-2.0
// Life with a session by the C interface: what the user sees, and what the daemon is told when.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/unit/client/session_fixture.h"

namespace loaderd::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class SessionTest : public SessionFixture {
 protected:
  SessionTest() { log_.clear(); }
};

TEST_F(SessionTest, OpenedTellsWhatTheDaemonSaid) {
  StartDaemon();
  ASSERT_EQ(Open(), LOADERD_OK) << loaderd_error();
  const loaderd_opened& opened = *loaderd_opened_of(session_);
  EXPECT_STREQ(opened.session, "s-1");
  EXPECT_EQ(opened.socket, folder_ / "d.sock");
  ASSERT_EQ(opened.num_fields, 2u);
  EXPECT_STREQ(opened.fields[0].name, "images");
  EXPECT_STREQ(opened.fields[0].dtype, "uint8");
  ASSERT_EQ(opened.fields[0].ndim, 3u);
  EXPECT_EQ(opened.fields[0].shape[2], 100);
  EXPECT_EQ(opened.fields[0].stride_bytes[0], 1000);
  EXPECT_EQ(opened.fields[1].offset, 4032u);
  EXPECT_EQ(opened.num_samples, 40u);
  EXPECT_EQ(opened.num_batches, 10u);
  EXPECT_EQ(opened.slot_count, 4u);
  EXPECT_EQ(opened.delivery, LOADERD_MAPPED);
  EXPECT_EQ(opened.plain_loop_copies, 0);
  EXPECT_STREQ(opened.job_fingerprint, "job-fingerprint");
  const said::Request open = daemon_->last_open();
  EXPECT_EQ(open.json, R"({"batch_size": 4})");
  EXPECT_EQ(open.client, "client test");
  EXPECT_EQ(open.delivery, 1);
}

TEST_F(SessionTest, EpochsFollowOneAnother) {
  StartDaemon();
  ASSERT_EQ(Open(), LOADERD_OK) << loaderd_error();
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    ASSERT_EQ(loaderd_start_epoch(session_, epoch, 2, epoch < 2), LOADERD_OK);
    for (uint64_t step = 2; step < 10; ++step) {
      const loaderd_batch* const batch = Next();
      ASSERT_NE(batch, nullptr);
      EXPECT_EQ(batch->epoch, epoch);
      EXPECT_EQ(batch->step, step);
      EXPECT_EQ(batch->count, 4u);
      EXPECT_EQ(batch->copied, 0);
      EXPECT_EQ(static_cast<uint8_t*>(batch->data)[3999], step + 1);
      loaderd_release(batch);
    }
    EXPECT_EQ(NextCode(), LOADERD_END_OF_EPOCH);
    EXPECT_EQ(NextCode(0), LOADERD_END_OF_EPOCH);
  }
  EXPECT_THAT(daemon_->Heard(), Contains("start 3 epoch 2 from 2"));
  EXPECT_THAT(daemon_->Heard(), Contains("start 1 epoch 0 from 2 goes on"));
}

TEST_F(SessionTest, OneBatchIsAskedForAhead) {
  Begin();
  // With nobody asking yet, the first batch is on its way.
  ASSERT_TRUE(daemon_->HeardWithin("want 1", kSoon));
  const loaderd_batch* const first = Next();
  EXPECT_EQ(first->step, 0u);
  const loaderd_batch* const second = Next();
  loaderd_release(first);
  loaderd_release(second);
  ASSERT_TRUE(daemon_->HeardWithin("release 1", kSoon));
  EXPECT_THAT(daemon_->Heard(), ElementsAre("open", "start 1 epoch 0 from 0", "want 1", "want 1",
                                            "want 1", "release 0", "release 1"));
}

TEST_F(SessionTest, BatchIsTheSegmentsMemoryAndWritable) {
  Begin();
  const loaderd_batch* const batch = Next();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(batch->data) % 64, 0u);
  std::memset(batch->data, 0x5a, 4000);
  EXPECT_EQ(daemon_->slot(0)[3999], 0x5a);
  loaderd_release(batch);
}

TEST_F(SessionTest, ReleaseIsSentAtOnceFromAnotherThreadWhileNextWaits) {
  std::atomic<int> wants{0};
  FakeDaemon::Options options;
  options.deliver = [&](FakeDaemon&, PeerConnection&, uint64_t, uint64_t step) {
    ++wants;
    return step > 0;  // the second batch never comes
  };
  Begin(std::move(options));
  const loaderd_batch* const batch = Next();
  std::atomic<bool> returned{false};
  std::thread waiting([&] {
    EXPECT_EQ(NextCode(1500), LOADERD_DEADLINE_EXCEEDED);
    returned = true;
  });
  std::this_thread::sleep_for(milliseconds(100));
  const auto begin = steady_clock::now();
  std::thread([&] { loaderd_release(batch); }).join();
  EXPECT_LT(steady_clock::now() - begin, milliseconds(100)) << "release waited for next";
  EXPECT_TRUE(daemon_->HeardWithin("release 0", milliseconds(500)));
  EXPECT_FALSE(returned);
  waiting.join();
}

TEST_F(SessionTest, ReleasesFromManyThreadsAllArrive) {
  FakeDaemon::Options options;
  options.opened.slot_count = 64;
  options.opened.segment_bytes = 64 * 8192;
  options.opened.num_batches = 2000;
  Begin(std::move(options));
  std::mutex mutex;
  std::vector<const loaderd_batch*> held;
  std::atomic<bool> done{false};
  std::vector<std::thread> releasing;
  for (int i = 0; i < 3; ++i) {
    releasing.emplace_back([&] {
      for (bool last = false; !last;) {
        last = done;
        std::vector<const loaderd_batch*> mine;
        {
          const std::lock_guard lock(mutex);
          mine.swap(held);
        }
        for (const loaderd_batch* const batch : mine) loaderd_release(batch);
      }
    });
  }
  uint64_t steps = 0;
  const loaderd_batch* batch = nullptr;
  while (loaderd_next(session_, 10'000, &batch) == LOADERD_OK) {
    EXPECT_EQ(batch->step, steps++);
    EXPECT_EQ(*static_cast<uint8_t*>(batch->data), static_cast<uint8_t>(batch->step + 1));
    const std::lock_guard lock(mutex);
    held.push_back(batch);
  }
  EXPECT_EQ(steps, 2000u) << loaderd_error();
  done = true;
  for (std::thread& thread : releasing) thread.join();
  // Each slot was lent as often as it was given back: the next epoch finds them all free.
  ASSERT_EQ(loaderd_start_epoch(session_, 1, 0, 0), LOADERD_OK);
  std::vector<const loaderd_batch*> all;
  for (int i = 0; i < 63; ++i) all.push_back(Next());
  for (const loaderd_batch* const each : all) {
    EXPECT_EQ(each->copied, 0);
    loaderd_release(each);
  }
}

TEST_F(SessionTest, LastSlotIsCopiedOutAndGivenBackBeforeNextReturns) {
  Begin();
  std::vector<const loaderd_batch*> held;
  for (int i = 0; i < 3; ++i) held.push_back(Next());
  for (uint64_t step = 3; step < 10; ++step) {
    const loaderd_batch* const batch = Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->copied, 1);
    EXPECT_EQ(batch->step, step);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch->data) % 64, 0u);
    held.push_back(batch);
  }
  EXPECT_EQ(NextCode(), LOADERD_END_OF_EPOCH);
  for (const loaderd_batch* const batch : held) {
    EXPECT_EQ(static_cast<uint8_t*>(batch->data)[3000], batch->step + 1);
  }
  EXPECT_THAT(
      daemon_->Heard(),
      ElementsAre("open", "start 1 epoch 0 from 0", "want 1", "want 1", "want 1", "want 1",
                  "release 3", "want 1", "release 3", "want 1", "release 3", "want 1", "release 3",
                  "want 1", "release 3", "want 1", "release 3", "want 1", "release 3", "want 1"));
  for (const loaderd_batch* const batch : held) loaderd_release(batch);
}

TEST_F(SessionTest, InlineBatchesAreCollected) {
  Begin({}, LOADERD_INLINE);
  EXPECT_EQ(loaderd_opened_of(session_)->delivery, LOADERD_INLINE);
  for (uint64_t step = 0; step < 10; ++step) {
    const loaderd_batch* const batch = Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->copied, 1);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch->data) % 64, 0u);
    EXPECT_EQ(static_cast<uint8_t*>(batch->data)[0], step + 1);
    EXPECT_EQ(static_cast<uint8_t*>(batch->data)[4032 + 31], step + 1);
    loaderd_release(batch);
  }
  EXPECT_EQ(NextCode(), LOADERD_END_OF_EPOCH);
  EXPECT_THAT(daemon_->Heard(), Not(Contains(StartsWith("release"))));
}

TEST_F(SessionTest, StartAnewInTheMiddleOfAnInlineBatchDropsIt) {
  FakeDaemon::Options options;
  options.deliver = [](FakeDaemon&, PeerConnection& peer, uint64_t start, uint64_t step) {
    if (start != 1 || step != 1) return false;
    peer.Reply(
        said::Batch({.start = 1, .step = 1, .handling = said::kInline, .inline_bytes = 8192}));
    peer.Reply(said::Chunk(std::string(5000, 'x')));
    // The rest follows the client's next word.
    const auto next = peer.Request();
    EXPECT_EQ(said::Understand(*next).kind, said::kStartEpoch);
    peer.Reply(said::Chunk(std::string(3192, 'x')));
    const auto want = peer.Request();
    EXPECT_EQ(said::Understand(*want).kind, said::kWant);
    peer.Reply(said::Batch(
        {.start = 2, .epoch = 5, .step = 7, .handling = said::kInline, .inline_bytes = 4064}));
    peer.Reply(said::Chunk(std::string(4064, 'y')));
    return true;
  };
  Begin(std::move(options), LOADERD_INLINE);
  loaderd_release(Next());
  EXPECT_EQ(NextCode(200), LOADERD_DEADLINE_EXCEEDED);
  ASSERT_EQ(loaderd_start_epoch(session_, 5, 7, 0), LOADERD_OK);
  const loaderd_batch* const batch = Next();
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->epoch, 5u);
  EXPECT_EQ(batch->step, 7u);
  EXPECT_EQ(*static_cast<char*>(batch->data), 'y');
  loaderd_release(batch);
}

TEST_F(SessionTest, BatchesOfAnEarlierStartAreGivenBackUnseen) {
  Begin();
  ASSERT_TRUE(daemon_->HeardWithin("want 1", kSoon));
  ASSERT_EQ(loaderd_start_epoch(session_, 7, 4, 0), LOADERD_OK);
  const loaderd_batch* const batch = Next();
  EXPECT_EQ(batch->epoch, 7u);
  EXPECT_EQ(batch->step, 4u);
  EXPECT_TRUE(daemon_->HeardWithin("release 0", kSoon));
  loaderd_release(batch);
}

TEST_F(SessionTest, BadSampleUnderFailIsAnErrorAndTheNextBatchComes) {
  FakeDaemon::Options options;
  options.deliver = [](FakeDaemon&, PeerConnection& peer, uint64_t start, uint64_t step) {
    if (step != 1) return false;
    peer.Reply(said::Batch({.start = start,
                            .step = step,
                            .count = 0,
                            .handling = said::kNone,
                            .error = "cat/7.jpg: truncated"}));
    return true;
  };
  Begin(std::move(options));
  loaderd_release(Next());
  EXPECT_EQ(NextCode(), LOADERD_DATA_LOSS);
  EXPECT_STREQ(loaderd_error(), "cat/7.jpg: truncated");
  const loaderd_batch* const third = Next();
  EXPECT_EQ(third->step, 2u);
  loaderd_release(third);
}

TEST_F(SessionTest, BadSamplesComeWithTheirBatch) {
  FakeDaemon::Options options;
  options.deliver = [](FakeDaemon&, PeerConnection& peer, uint64_t start, uint64_t step) {
    if (step != 0) return false;
    peer.Reply(said::BadSample(5, "a.jpg: empty", -1));
    peer.Reply(said::BadSample(9, "b.jpg: gone", 11));
    peer.Reply(said::Batch({.start = start, .slot = 3, .count = 3, .bad_count = 2}));
    return true;
  };
  Begin(std::move(options));
  const loaderd_batch* const batch = Next();
  ASSERT_EQ(batch->bad_count, 2u);
  EXPECT_EQ(batch->count, 3u);
  EXPECT_EQ(batch->bad[0].index, 5);
  EXPECT_STREQ(batch->bad[0].reason, "a.jpg: empty");
  EXPECT_EQ(batch->bad[0].substitute, -1);
  EXPECT_EQ(batch->bad[1].substitute, 11);
  const loaderd_batch* const clean = Next();
  EXPECT_EQ(clean->bad_count, 0u);
  loaderd_release(clean);
  loaderd_release(batch);
}

TEST_F(SessionTest, TimeLimitsAreKept) {
  FakeDaemon::Options options;
  options.hold_batches = true;
  Begin(std::move(options));
  auto begin = steady_clock::now();
  EXPECT_EQ(NextCode(0), LOADERD_DEADLINE_EXCEEDED);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(40));
  begin = steady_clock::now();
  EXPECT_EQ(NextCode(50), LOADERD_DEADLINE_EXCEEDED);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(50));
  EXPECT_LT(steady_clock::now() - begin, milliseconds(500));
  EXPECT_THAT(loaderd_error(), HasSubstr("50 ms"));
  daemon_->LetGo();
  loaderd_release(Next());
}

TEST_F(SessionTest, SignalInterruptsNext) {
  FakeDaemon::Options options;
  options.hold_batches = true;
  Begin(std::move(options));
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &action, nullptr);
  const pthread_t self = ::pthread_self();
  std::atomic<bool> done{false};
  std::thread signalling([&] {
    while (!done) {
      std::this_thread::sleep_for(milliseconds(50));
      ::pthread_kill(self, SIGUSR1);
    }
  });
  EXPECT_EQ(NextCode(-1), LOADERD_INTERRUPTED);
  done = true;
  signalling.join();
  daemon_->LetGo();
  const loaderd_batch* const batch = Next();
  EXPECT_EQ(batch->step, 0u);
  loaderd_release(batch);
}

TEST_F(SessionTest, IndicesGoOutInOrderAndEndOnce) {
  FakeDaemon::Options options;
  options.hold_batches = true;
  StartDaemon(std::move(options));
  ASSERT_EQ(Open(), LOADERD_OK);
  const int64_t indices[] = {5, 3, 1'000'000'000'000};
  EXPECT_EQ(loaderd_send_indices(session_, 0, indices, 3), LOADERD_FAILED_PRECONDITION);
  ASSERT_EQ(loaderd_start_epoch(session_, 0, 2, 0), LOADERD_OK);
  EXPECT_EQ(loaderd_send_indices(session_, 2, indices, 3), LOADERD_OK);
  EXPECT_EQ(loaderd_send_indices(session_, 3, nullptr, 0), LOADERD_OK);
  ASSERT_EQ(loaderd_start_epoch(session_, 1, 0, 0), LOADERD_OK);
  EXPECT_EQ(loaderd_send_indices(session_, 0, indices, 2), LOADERD_OK);
  EXPECT_EQ(loaderd_end_indices(session_), LOADERD_OK);
  EXPECT_EQ(loaderd_send_indices(session_, 0, nullptr, 2), LOADERD_INVALID_ARGUMENT);
  daemon_->LetGo();
  ASSERT_TRUE(daemon_->HeardWithin("indices 2/1  end", kSoon));
  EXPECT_THAT(daemon_->Heard(),
              AllOf(Contains("indices 1/2 5,3,1000000000000 last"), Contains("indices 1/3  end"),
                    Contains("indices 2/0 5,3 last")));
}

TEST_F(SessionTest, BigBatchOfIndicesIsSplitAndWaitsForTheWindow) {
  FakeDaemon::Options options;
  options.http2.settings = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 4096}};
  Begin(std::move(options));
  std::vector<int64_t> indices(100'000);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i) << 30;
  const auto begin = steady_clock::now();
  EXPECT_EQ(loaderd_send_indices(session_, 0, indices.data(), indices.size()), LOADERD_OK);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(500)) << "sending waited for the daemon";
  for (int i = 0; i < 10; ++i) loaderd_release(Next());
  EXPECT_EQ(NextCode(), LOADERD_END_OF_EPOCH);
  // Nothing but the connection's windows moves now; next is what moves them.
  ASSERT_EQ(loaderd_start_epoch(session_, 1, 0, 0), LOADERD_OK);
  loaderd_release(Next());
  ASSERT_TRUE(daemon_->HeardWithin("indices 1/0 many last", kSoon));
  const std::vector<std::string> heard = daemon_->Heard();
  EXPECT_EQ(std::count(heard.begin(), heard.end(), "indices 1/0 many"), 3);
}

TEST_F(SessionTest, DaemonsDeathIsUnavailableAndBatchesStayReadable) {
  Begin();
  const loaderd_batch* const batch = Next();
  daemon_.reset();
  while (NextCode() == LOADERD_OK) {
  }
  EXPECT_EQ(NextCode(), LOADERD_UNAVAILABLE);
  EXPECT_THAT(loaderd_error(), AllOf(HasSubstr("d.sock"), HasSubstr("start it again")));
  EXPECT_EQ(loaderd_start_epoch(session_, 1, 0, 0), LOADERD_UNAVAILABLE);
  EXPECT_EQ(*static_cast<uint8_t*>(batch->data), 1);
  loaderd_release(batch);
}

TEST_F(SessionTest, ErrorThatEndsTheCallIsTold) {
  FakeDaemon::Options options;
  options.deliver = [](FakeDaemon&, PeerConnection& peer, uint64_t, uint64_t) {
    peer.Finish("8", "no slots are left");
    return true;
  };
  Begin(std::move(options));
  EXPECT_EQ(NextCode(), LOADERD_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(loaderd_error(), "no slots are left");
  EXPECT_EQ(NextCode(), LOADERD_RESOURCE_EXHAUSTED);
}

TEST_F(SessionTest, DaemonThatStopsInGoodOrderIsNamed) {
  for (const char* const status : {"14", "0"}) {
    FakeDaemon::Options options;
    options.deliver = [status](FakeDaemon&, PeerConnection& peer, uint64_t, uint64_t) {
      peer.Finish(status, "Cancelling all calls");
      return true;
    };
    Begin(std::move(options));
    EXPECT_EQ(NextCode(), LOADERD_UNAVAILABLE);
    EXPECT_THAT(loaderd_error(), AllOf(HasSubstr("d.sock"), HasSubstr("start it again")));
    loaderd_close(std::exchange(session_, nullptr));
    daemon_.reset();
  }
}

TEST_F(SessionTest, CloseWithHeldBatchesKeepsConnectionAndMapping) {
  Begin();
  const loaderd_batch* const batch = Next();
  const loaderd_batch* const other = Next();
  loaderd_close(session_);
  session_ = nullptr;
  EXPECT_FALSE(daemon_->EndsWithin(milliseconds(200)));
  EXPECT_EQ(static_cast<uint8_t*>(batch->data)[17], 1);
  loaderd_release(other);
  EXPECT_FALSE(daemon_->EndsWithin(milliseconds(100)));
  loaderd_release(batch);
  EXPECT_TRUE(daemon_->EndsWithin(kSoon));
  EXPECT_THAT(daemon_->Heard(), Not(Contains(StartsWith("release"))));
}

TEST_F(SessionTest, CopiedBatchesOutliveEverything) {
  Begin({}, LOADERD_INLINE);
  const loaderd_batch* const batch = Next();
  loaderd_close(session_);
  session_ = nullptr;
  EXPECT_TRUE(daemon_->EndsWithin(kSoon));
  EXPECT_EQ(static_cast<uint8_t*>(batch->data)[17], 1);
  loaderd_release(batch);
}

TEST_F(SessionTest, CloseEndsANextThatWaitsOnAnotherThread) {
  FakeDaemon::Options options;
  options.hold_batches = true;
  Begin(std::move(options));
  std::thread waiting([&, session = session_] {
    const loaderd_batch* batch = nullptr;
    EXPECT_EQ(loaderd_next(session, -1, &batch), LOADERD_CANCELLED);
  });
  std::this_thread::sleep_for(milliseconds(50));
  loaderd_close(session_);
  session_ = nullptr;
  waiting.join();
  daemon_->LetGo();
  EXPECT_TRUE(daemon_->EndsWithin(kSoon));
}

TEST_F(SessionTest, LoaderCostsOneDescriptorAndNoThread) {
  FakeDaemon::Options options;
  options.opened.slot_count = 210;
  options.opened.segment_bytes = 210 * 8192;
  options.opened.num_batches = 205;
  options.on_open = [](PeerConnection&, const said::Request&) { return false; };
  StartDaemon(std::move(options));
  const int threads = Threads();
  const int descriptors = OpenDescriptors();
  ASSERT_EQ(Open(), LOADERD_OK) << loaderd_error();
  // The daemon's own end of the connection, with a thread of the fake's, is in this process too.
  EXPECT_EQ(DescriptorsOnceThey(descriptors + 2), descriptors + 2);
  EXPECT_EQ(Threads(), threads + 1);
  ASSERT_EQ(loaderd_start_epoch(session_, 0, 0, 0), LOADERD_OK);
  std::vector<const loaderd_batch*> held;
  for (int i = 0; i < 200; ++i) held.push_back(Next());
  EXPECT_EQ(DescriptorsOnceThey(descriptors + 2), descriptors + 2);
  EXPECT_EQ(Threads(), threads + 1);
  for (const loaderd_batch* const batch : held) loaderd_release(batch);
  loaderd_close(session_);
  session_ = nullptr;
  ASSERT_TRUE(daemon_->EndsWithin(kSoon));
}

TEST_F(SessionTest, CallsOnNothingAreRefused) {
  const loaderd_batch* batch = nullptr;
  EXPECT_EQ(loaderd_next(nullptr, 0, &batch), LOADERD_INVALID_ARGUMENT);
  EXPECT_EQ(loaderd_start_epoch(nullptr, 0, 0, 0), LOADERD_INVALID_ARGUMENT);
  EXPECT_EQ(loaderd_open(nullptr, nullptr, &session_), LOADERD_INVALID_ARGUMENT);
  EXPECT_EQ(loaderd_open("{}", nullptr, nullptr), LOADERD_INVALID_ARGUMENT);
  EXPECT_EQ(loaderd_opened_of(nullptr), nullptr);
  loaderd_release(nullptr);
  loaderd_close(nullptr);
  EXPECT_EQ(loaderd_abi_version(), uint32_t{LOADERD_ABI_VERSION});
  StartDaemon();
  ASSERT_EQ(Open(), LOADERD_OK);
  EXPECT_EQ(loaderd_next(session_, 0, &batch), LOADERD_FAILED_PRECONDITION);
  EXPECT_EQ(loaderd_next(session_, 0, nullptr), LOADERD_INVALID_ARGUMENT);
  EXPECT_STREQ(loaderd_error(), "batch is NULL");
}

}  // namespace
}  // namespace loaderd::client
