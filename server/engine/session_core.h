// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/budget.h"
#include "server/base/mutex.h"
#include "server/engine/backer.h"
#include "server/engine/batch_queue.h"
#include "server/engine/engine.h"
#include "server/engine/fleet.h"
#include "server/engine/rooms.h"
#include "server/shm/segment.h"

namespace loaderd::engine {

// Sums over all sessions of an engine.
struct Totals {
  std::atomic<uint64_t> samples_delivered = 0, batches_delivered = 0, bad_samples = 0;
};

// A segment and what it is charged to. Punched out before the Grants go back, unless *keep_pages.
class SegmentCharge {
 public:
  SegmentCharge(Grant bytes, Grant descriptor, shm::Segment segment,
                std::shared_ptr<const std::atomic<bool>> keep_pages)
      : bytes_(std::move(bytes)),
        descriptor_(std::move(descriptor)),
        segment_(std::move(segment)),
        keep_pages_(std::move(keep_pages)) {}
  SegmentCharge(SegmentCharge&&) = default;
  SegmentCharge& operator=(SegmentCharge&&) = default;
  ~SegmentCharge() {
    if (keep_pages_ != nullptr && !*keep_pages_) segment_.Punch();  // null where it was moved from
  }

  const shm::Segment& segment() const { return segment_; }

 private:
  Grant bytes_;
  Grant descriptor_;
  shm::Segment segment_;                                 // after the two: it goes before they do
  std::shared_ptr<const std::atomic<bool>> keep_pages_;  // the engine's, which it may outlive
};

// All of a session but its handle. Outlives it while pieces are in flight or the lease is held.
// Thread-safe.
class SessionCore : public Workload,
                    public Backing,
                    public std::enable_shared_from_this<SessionCore> {
 public:
  // What does not change.
  struct Facts {
    uint64_t id = 0;
    std::string name;
    Owner owner;
    plan::Job job;
    std::string fingerprint;
    // Shared with all sessions that read it.
    std::shared_ptr<const dataset::Dataset> dataset;
    std::unique_ptr<const transform::Recipe> recipe;
    BatchLayout layout;
    // Where batches are mixed: how, and what they are like before, in each of so many rooms.
    std::unique_ptr<const transform::BatchMix> mix;
    BatchLayout unmixed;
    uint32_t rooms = 0;
    uint32_t slots = 1;
    uint32_t present_slots = 1;  // with pages when it is made
    uint32_t run_length = 1;     // pieces that travel together, at most
    uint64_t num_batches = 0;
    uint64_t epoch_samples = 0;
    bool inline_delivery = false;
    uint32_t max_storage_failures = 100;
    Clock::Time opened;
    SessionEvents* events = nullptr;
    Fleet* fleet = nullptr;  // outlive the open session; not touched after Close
    Totals* totals = nullptr;
    const Clock* clock = nullptr;
  };
  SessionCore(Facts facts, Grant session, SegmentCharge charge, Rooms rooms);
  ~SessionCore() override;

  const Facts& constant() const { return facts_; }
  int segment_fd() const { return segment_fd_; }
  std::span<const uint8_t> SlotBytes(uint32_t slot) const;

  // As Session's calls of these names. The caller holds the core: an event may destroy the handle.
  Status Start(uint64_t epoch, uint64_t first_batch, uint64_t start, bool goes_on);
  Status Want(uint32_t count);
  Status Release(std::span<const uint32_t> slots);
  Status AddIndices(uint64_t start, uint64_t batch, std::span<const int64_t> indices, bool last,
                    bool end);
  SessionFacts Tell() const;
  std::unique_ptr<SegmentLease> Close();
  void EndLease();
  void EndHandle();
  // False when it is closed and nothing of it is charged any more.
  bool listed() const;

  uint32_t uid() const override { return facts_.owner.uid; }
  size_t Take(std::span<Piece> pieces) override;
  void Read(Run& run) override;
  void Decode(Run& run, transform::Scratch& scratch) override;
  void AddCpu(std::chrono::nanoseconds cpu) override { cpu_ns_ += cpu.count(); }
  bool BackNext() override;

 private:
  bool Wanted(const Piece& piece) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return queue_.Wanted(piece);  // which needs no lock
  }
  // Where the piece's batch is made: its room, or its slot.
  SlotRows RowsOf(const Piece& piece) const;
  // The whole batch's last work, on its last piece's thread.
  void Finish(const Piece& piece, std::span<const uint32_t> lost, uint32_t planned) const;
  // One piece that failed, or was in vain.
  void End(const Piece& piece, std::string fault, bool storage = false);
  // Good ones, all of one batch.
  void EndAll(std::span<const Piece> pieces);
  void FinishIfDue(const Piece& piece, BatchQueue::After after);
  void LogBad(const Piece& piece, const std::string& fault);
  // After a change that may have made pieces or deliveries due.
  void Go(bool work);
  // Delivers what is due. One thread at a time does; what becomes due meanwhile is its task too.
  void Deliver();
  void Count(const Delivery& delivery) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives back what nobody holds any more.
  void Settle();
  std::span<uint8_t> Slot(uint32_t slot) const {
    return bytes_.subspan(slot * facts_.layout.slot_bytes, facts_.layout.slot_bytes);
  }

  const Facts facts_;
  int segment_fd_ = -1;
  std::span<uint8_t> bytes_;  // of charge_'s segment
  std::span<uint8_t> room_bytes_;

  std::atomic<int64_t> cpu_ns_ = 0;

  mutable Mutex mutex_;
  CondVar delivered_;
  BatchQueue queue_ ABSL_GUARDED_BY(mutex_);
  Grant session_ ABSL_GUARDED_BY(mutex_);
  std::optional<SegmentCharge> charge_ ABSL_GUARDED_BY(mutex_);
  Rooms rooms_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool handle_ ABSL_GUARDED_BY(mutex_) = true;  // the handle may read slots
  bool lease_ ABSL_GUARDED_BY(mutex_) = false;
  bool backing_ ABSL_GUARDED_BY(mutex_) = false;  // pages of the segment are being taken
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread::id deliverer_ ABSL_GUARDED_BY(mutex_);
  uint64_t batches_delivered_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t batches_copied_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t samples_delivered_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bad_samples_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> logged_ ABSL_GUARDED_BY(mutex_);  // bad indices that have a line in the log
};

}  // namespace loaderd::engine
