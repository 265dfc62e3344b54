// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "client/cpp/src/fork_guard.h"
#include "client/cpp/src/layout.h"
#include "client/cpp/src/reopening.h"
#include "client/cpp/src/session.h"
#include "client/cpp/src/status.h"

// What the C interface hands out.
struct loaderd_session {};

namespace loaderd::client {

// A job's batches, one session after another: keeps the cursor, and every explicit index from there
// on, with which it goes on where a daemon has gone. Batches hold the session that they are of, not
// the stream. Lives until Close was called and no call is inside. Thread-safe: calls are
// serialised, and Close ends one that waits.
class Stream : public loaderd_session {
 public:
  // Takes over the session's reference. `job.options.waiting` is not called any more.
  Stream(Job job, Session* session);

  const loaderd_opened& facts() const { return layout_.facts(); }
  bool forked() const { return generation_ != ForkGeneration(); }

  Status StartEpoch(uint64_t epoch, uint64_t first_batch, bool goes_on);
  Status SendIndices(uint64_t batch, std::span<const int64_t> indices);
  Status EndIndices();
  Status Next(int64_t timeout_ms, const loaderd_batch** batch);
  void Close();

  // Keeps the stream alive during a call, so that Close may come from another thread meanwhile.
  class Use {
   public:
    explicit Use(Stream* stream) : stream_(stream) { stream_->Ref(); }
    ~Use() { stream_->Unref(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Stream* const stream_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  struct Sent {
    uint64_t batch = 0;
    std::vector<int64_t> indices;
  };

  ~Stream();
  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref();
  Session::Use Current();

  // Below: with call_mutex_ held.
  Status Usable() const;
  Status TakeIndices(uint64_t batch, std::span<const int64_t> indices, bool end);
  // Nothing: to be called again.
  std::optional<Status> Receive(Clock::time_point until, const loaderd_batch** batch);
  std::optional<Status> Reopen(Clock::time_point until);
  Status Resume(Session* session);
  bool Lose(const Status& why);
  void MoveTo(uint64_t batch);
  void ForgetIndices();

  const uint64_t generation_ = ForkGeneration();
  const bool inline_;
  Job job_;
  const Layout layout_;  // of the first session; those that follow have the same
  std::atomic<uint32_t> references_{1};
  std::atomic<bool> closed_{false};

  std::mutex call_mutex_;
  // Guarded by call_mutex_.
  Status failed_;
  bool started_ = false;
  bool ended_ = false;  // the epoch
  bool goes_on_ = false;
  uint64_t epoch_ = 0;
  uint64_t batch_ = 0;         // the next to be handed out
  uint64_t next_indices_ = 0;  // batch that the next indices belong to
  std::deque<Sent> sent_;      // explicit order: from batch_ on
  bool indices_ended_ = false;
  std::unique_ptr<Reopening> reopening_;  // while there is no session
  // From a loss to the first answer after it: a daemon that dies of the job each time is not waited
  // for without end.
  std::optional<Clock::time_point> lost_;

  std::mutex session_mutex_;
  Session* session_;  // guarded by session_mutex_; null while there is none, and after Close
};

}  // namespace loaderd::client
