// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "server/base/budget.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/engine/batch_queue.h"
#include "server/engine/run.h"
#include "server/engine/turns.h"
#include "server/transform/recipe.h"

namespace loaderd::engine {

// What the fleet asks of a session. Called by fleet threads with no lock of the fleet held; Take()
// by one at a time.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual uint32_t uid() const = 0;  // whose descriptors its reads take
  // Fills `pieces` from the front with the next ones of one batch; how many there are.
  virtual size_t Take(std::span<Piece> pieces) = 0;
  // Blocks on storage. Takes out what has ended: there is nothing to decode.
  virtual void Read(Run& run) = 0;
  virtual void Decode(Run& run, transform::Scratch& scratch) = 0;
  // What decoding a run has cost. Reading is not counted: it waits more than it works.
  virtual void AddCpu(std::chrono::nanoseconds cpu) = 0;
};

// The persistent threads: readers wait for storage, decoders use the cores, and bounded buffers lie
// between them. The cores are shared by turns, in CPU time. Its lock is the scheduler's, taken some
// times a run, never for a sample. Thread-safe.
class Fleet {
 public:
  struct Options {
    int decoders = 1;
    int readers = 1;
    uint32_t buffers = 1;           // encoded samples in memory
    Budget* descriptors = nullptr;  // one a reader that reads; outlives the fleet
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
  // A descriptor for one read: a Grant, or the one read that may always go on, so that others'
  // descriptors never stop all.
  struct Pass {
    Grant grant;
    bool reserve = false;
  };

  void Read();
  void Decode();
  std::unique_ptr<Run> NextTurn();
  void WaitForTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Pass> TakePass(uint32_t uid);
  void Starve(std::unique_ptr<Run> run);
  void EndAsking(Run& run);
  void EndRead(std::unique_ptr<Run> run, Pass pass);
  void EndUnread(std::unique_ptr<Run> run, Pass pass);
  void ReturnPass(Pass& pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::unique_ptr<Run> NextEncoded();
  // True: a reader has to be told, to begin or to look after a large run.
  bool Return(std::unique_ptr<Run> run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waking a reader for nothing, or with the lock held, costs system calls.
  bool HasTurn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !turns_.empty() && !runs_.empty();
  }

  const Options options_;
  mutable Mutex mutex_;
  CondVar turn_;     // a member is queued, or a run is back
  CondVar encoded_;  // there is something to decode
  Turns turns_ ABSL_GUARDED_BY(mutex_);
  RunPool runs_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<Workload>> members_ ABSL_GUARDED_BY(mutex_);
  RunQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool reserve_used_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_readers_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_decoders_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> readers_;
  std::vector<std::thread> decoders_;
};

}  // namespace loaderd::engine
