// SPDX-License-Identifier: Apache-2.0
// A session's decisions, apart from the doing: which sample is wanted next, into which slot, what
// is delivered when and how.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/engine/engine.h"
#include "server/engine/index_feed.h"
#include "server/plan/epoch_plan.h"
#include "server/plan/job.h"
#include "server/shm/slot_pool.h"

namespace loaderd::engine {

// One sample on its way into its row of a batch.
struct Piece {
  uint32_t slot = 0;
  uint32_t row = 0;
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint64_t index = 0;  // whose data is read: the planned one, or its stand-in
  uint64_t planned = 0;
  bool pad = false;
  int attempt = -1;   // of the stand-in; -1: the planned sample itself
  uint32_t room = 0;  // where there are rooms
  size_t bad = 0;     // with a stand-in: the planned one's place in its batch's list
};

// Not thread-safe: its session's lock guards it. Does no I/O and allocates little; Batch() of a
// plan is the longest step.
class BatchQueue {
 public:
  struct Rules {
    plan::Order order;
    uint64_t num_samples = 0;  // of the dataset
    uint64_t num_batches = 0;  // of an epoch; 0 when explicit
    uint32_t batch_size = 1;
    uint32_t slots = 1;
    uint32_t present_slots = UINT32_MAX;  // at first: the others come by AddSlot
    BadSamplePolicy policy = BadSamplePolicy::kFail;
    bool inline_delivery = false;
    uint32_t max_storage_failures = 100;
    uint32_t rooms = 0;  // where batches are made before they go into their slots; 0: in the slots
  };
  explicit BatchQueue(const Rules& rules);

  // As Session's calls of these names.
  Status Start(uint64_t epoch, uint64_t first_batch, uint64_t start, bool goes_on);
  Status Want(uint32_t count);
  Status Release(std::span<const uint32_t> slots);
  Status AddIndices(uint64_t start, uint64_t batch, std::span<const int64_t> indices, bool last,
                    bool end);
  // Nothing is planned or delivered any more; pieces in flight still end.
  void Close();

  // The next slot whose pages are to be taken, or nullopt. AddSlot() when they were; GiveUpSlots()
  // when there are none to be had: the session goes on with the slots that it has.
  std::optional<uint32_t> NextAbsentSlot() const {
    return closed_ ? std::nullopt : pool_.NextAbsent();
  }
  void AddSlot(uint32_t slot) { pool_.Add(slot); }
  void GiveUpSlots() { pool_.GiveUp(); }

  // The piece to read next: batches in order, a new one whenever a slot is FREE. Each taken piece
  // must be ended.
  std::optional<Piece> TakePiece();
  // As many of one batch, from the front of `pieces` on.
  size_t TakePieces(std::span<Piece> pieces);
  // The epoch whose plan TakePiece() lacks; SetPlan() gives it. Of plans, the current epoch's and
  // its successor's are kept.
  std::optional<uint64_t> MissingPlan() const;
  void SetPlan(uint64_t epoch, std::unique_ptr<const plan::EpochPlan> plan);

  // False when the batch was dropped meanwhile: the piece's work is in vain, but it must be ended
  // all the same. Any thread, without a lock.
  bool Wanted(const Piece& piece) const;

  enum class After {
    kNothing,
    kWork,    // TakePiece() may have something
    kFinish,  // rows must be moved: SlotRows::Remove(LostRows(slot), planned rows), and the batch
              // be mixed where there are rooms; then EndFinish(slot)
  };
  // `fault` is empty for a good sample; `storage`: it is the storage's. Deliveries may have become
  // due.
  After EndPiece(const Piece& piece, std::string fault, bool storage = false);
  std::vector<uint32_t> LostRows(uint32_t slot) const;
  uint32_t PlannedRows(uint32_t slot) const;
  After EndFinish(uint32_t slot);

  // What is due now, or nullopt. Its slot, if it has one, is lent from here on.
  std::optional<Delivery> NextDelivery();

  uint64_t in_flight() const { return in_flight_; }  // pieces and finishes begun and not ended
  void Tell(SessionFacts& facts) const;              // epoch, next_batch, num_batches, slots_*

 private:
  struct Bad {
    uint32_t row = 0;
    bool lost = true;  // nothing stands in for it
    BadSample sample;
  };
  struct Batch {
    uint64_t epoch = 0;
    uint64_t step = 0;
    std::optional<uint32_t> room = std::nullopt;
    std::vector<plan::PlannedSample> samples;
    uint32_t next_row = 0;  // rows before it have been taken
    uint32_t in_flight = 0;
    uint32_t left = 0;  // samples without a result
    bool ready = false;
    bool storage_gone = false;          // it ended while too many reads in a row had failed
    std::atomic<bool> dropped = false;  // its slot becomes FREE when the last piece has ended
    std::vector<Bad> bad;
  };
  struct Place {
    uint64_t epoch = 0;
    uint64_t step = 0;
  };

  bool is_explicit() const { return rules_.order.kind == plan::OrderKind::kExplicit; }
  // Where the next batch is planned; nullopt while there is none to plan.
  std::optional<Place> NextPlace() const;
  const plan::EpochPlan* FindPlan(uint64_t epoch) const;
  bool PlanBatch();
  Piece TakeRow(uint32_t slot);
  void Drop(uint32_t slot);
  // True where a batch may now be planned for it.
  bool LeaveRoom(Batch& batch);
  // The batch has lost a piece in flight: frees its slot if it was dropped.
  bool FreeIfDropped(uint32_t slot);
  After RecordFault(const Piece& piece, std::string fault);
  After Complete(uint32_t slot);
  bool FailsWhole(const Batch& batch) const;
  bool StorageGone() const { return storage_failures_ > rules_.max_storage_failures; }
  Delivery Deliver(uint32_t slot);

  const Rules rules_;
  shm::SlotPool pool_;
  IndexFeed feed_;
  std::vector<uint32_t> free_rooms_;
  std::vector<Batch> batches_;  // by slot; meaningful while FILLING or READY
  std::deque<uint32_t>
      order_;  // their slots in order of delivery; only the last has rows not taken
  std::deque<Piece> stand_ins_;  // to be taken before anything else
  struct Plan {
    uint64_t epoch = 0;
    std::unique_ptr<const plan::EpochPlan> plan;
  };
  std::vector<Plan> plans_;
  Place plan_at_;
  uint64_t in_flight_ = 0;
  uint64_t storage_failures_ = 0;  // in a row, in the order in which pieces end

  bool started_ = false;
  bool closed_ = false;
  uint64_t start_ = 0;
  uint64_t epoch_ = 0;
  uint64_t next_ = 0;  // step to be delivered next
  bool goes_on_ = false;
  bool ended_ = false;  // the epoch's end has been delivered
  uint32_t want_ = 0;
};

}  // namespace loaderd::engine
