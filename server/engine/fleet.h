// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "server/base/budget.h"
#include "server/base/byte_buffer.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/engine/batch_queue.h"
#include "server/engine/buffer_pool.h"
#include "server/engine/turns.h"
#include "server/transform/recipe.h"

namespace loaderd::engine {

// What the fleet asks of a session. Called by fleet threads with no lock of the fleet held; Take()
// by one at a time.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual uint32_t uid() const = 0;  // whose descriptors its reads take
  virtual std::optional<Piece> Take() = 0;
  // Blocks on storage. False: the piece has ended, there is nothing to decode.
  virtual bool Read(const Piece& piece, ByteBuffer& buffer) = 0;
  virtual void Decode(const Piece& piece, std::span<const uint8_t> encoded,
                      transform::Scratch& scratch) = 0;
};

// The persistent threads: readers wait for storage, decoders use the cores, and bounded buffers lie
// between them. Its lock is the scheduler's. Thread-safe.
class Fleet {
 public:
  struct Options {
    int decoders = 1;
    int readers = 1;
    uint32_t buffers = 1;
    Budget* descriptors = nullptr;  // one a read; outlives the fleet
    const Clock* clock = nullptr;
  };
  explicit Fleet(const Options& options);
  ~Fleet();  // ends what was read, then joins

  // Shared with the threads that are in a piece of it: they may be stuck there long after its owner
  // has let go.
  void Join(uint64_t member, std::shared_ptr<Workload> work);
  void Leave(uint64_t member);
  // Take() may have something. Never call it with a lock held that Take() takes.
  void Wake(uint64_t member);
  bool Responds() const;

 private:
  struct Turn {
    uint64_t member = 0;
    std::shared_ptr<Workload> work;  // shared with members_, see Join
    std::unique_ptr<ByteBuffer> buffer;
  };
  struct Encoded {
    std::shared_ptr<Workload> work;  // likewise
    Piece piece;
    std::unique_ptr<ByteBuffer> buffer;
  };
  // A descriptor for one read: a Grant, or the one read that may always go on, so that others'
  // descriptors never stop all.
  struct Pass {
    Grant grant;
    bool reserve = false;
  };

  void Read();
  void Decode();
  std::optional<Turn> NextTurn();
  void WaitForTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Pass> TakePass(uint32_t uid);
  void Starve(Turn turn);
  void EndAsking(uint64_t member, bool took);
  void EndRead(Turn turn, Pass pass, std::optional<Piece> decode);
  void EndUnread(Turn turn, Pass pass);
  void ReturnPass(Pass& pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Encoded> NextEncoded();
  void ReturnBuffer(std::unique_ptr<ByteBuffer> buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar turn_;     // a member is queued, or a buffer is back
  CondVar encoded_;  // there is something to decode
  Turns turns_ ABSL_GUARDED_BY(mutex_);
  BufferPool buffers_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<Workload>> members_ ABSL_GUARDED_BY(mutex_);
  std::deque<Encoded> queue_ ABSL_GUARDED_BY(mutex_);
  bool reserve_used_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_readers_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_decoders_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> readers_;
  std::vector<std::thread> decoders_;
};

}  // namespace loaderd::engine
