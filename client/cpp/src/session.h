// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/src/batch.h"
#include "client/cpp/src/channel.h"
#include "client/cpp/src/layout.h"
#include "client/cpp/src/proto_codec.h"
#include "client/cpp/src/segment_map.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

// An opened session with one daemon. Lives until Close or Abandon was called, every mapped batch is
// released and no call is inside. Thread-safe.
//
// Two locks. call_mutex_ serialises StartEpoch, SendIndices and Next. io_mutex_ guards the channel
// and is never held while waiting, so that a Release from any thread goes out at once. Release
// itself takes no lock that it would wait for: it marks its slot and whoever holds io_mutex_ sends
// the mark on before, or right after, letting go.
class Session {
 public:
  Session(std::unique_ptr<Channel> channel, std::unique_ptr<SegmentMap> segment, Opened opened);

  const Opened& opened() const { return layout_.opened(); }
  bool inline_delivery() const { return inline_; }
  const std::string& socket() const { return channel_->socket(); }

  Status StartEpoch(uint64_t epoch, uint64_t first_batch, bool goes_on);
  Status SendIndices(uint64_t batch, std::span<const int64_t> indices);
  Status EndIndices();
  Status Next(int64_t timeout_ms, const loaderd_batch** batch);
  // How long the daemon has left a ping unanswered, which one that lives never does, however busy.
  // Next sends it when it has heard nothing for some seconds.
  std::chrono::milliseconds Unanswered();
  void Close();
  // As Close, where the daemon has gone: the connection's descriptor is closed at once.
  void Abandon();
  static void Release(const Batch* batch);

  // Keeps the session alive during a call, so that its end may come from another thread meanwhile.
  class Use {
   public:
    explicit Use(Session* session) : session_(session) {  // null: of none
      if (session_ != nullptr) session_->Ref();
    }
    ~Use() {
      if (session_ != nullptr) session_->Unref();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const { return session_ != nullptr; }
    Session* operator->() const { return session_; }

   private:
    Session* const session_;
  };

 private:
  class IoLock;
  enum class State { kNew, kRunning, kEnded };

  ~Session();
  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref();

  // Below: with io_mutex_ held.
  std::optional<Status> Advance(const loaderd_batch** batch);
  Status Take(BatchRef ref);
  Status Take(BadSamples bad);
  Status Take(const Chunk& chunk);
  std::optional<Status> Deliver(const loaderd_batch** batch);
  std::unique_ptr<Batch> MakeBatch();
  void DropPending();
  Status Fail(Status status);
  Status WhyItEnded() const;
  Status BrokenRule(const std::string& what);
  Status Usable();
  Status QueueIndices(uint64_t batch, std::span<const int64_t> indices, bool end);
  void QueueReleases();

  void Mark(uint32_t slot);
  void SendMarks();

  const bool inline_;
  std::atomic<uint32_t> references_{1};
  std::atomic<bool> closed_{false};

  std::mutex call_mutex_;

  // Destroyed first to last in reverse: the connection must outlive the mapping, whose memory it
  // stands for.
  const std::unique_ptr<Channel> channel_;
  const std::unique_ptr<SegmentMap> segment_;  // null when inline
  const Layout layout_;

  std::mutex io_mutex_;
  // Guarded by io_mutex_.
  State state_ = State::kNew;
  uint64_t start_ = 0;
  uint64_t next_indices_ = 0;  // batch that the next indices belong to
  Status failed_;
  struct Pending {
    BatchRef ref;
    std::vector<BadSample> bad;
    uint64_t chunk_bytes = 0;  // that came of ref.inline_bytes
    Memory memory;             // of an inline batch
  };
  std::optional<Pending> pending_;  // a batch that is not delivered yet
  std::vector<BadSample> bad_;      // told before the batch they belong to
  std::vector<bool> lent_;          // slots that the daemon believes to be ours
  std::vector<uint32_t> released_;  // scratch of QueueReleases, reserved

  // Any thread: slots to give back, and whether there are any.
  const std::unique_ptr<std::atomic<bool>[]> marks_;
  std::atomic<bool> marked_{false};
};

}  // namespace loaderd::client
