// SPDX-License-Identifier: Apache-2.0
#include "server/engine/session_core.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/dataset/storage_health.h"
#include "server/engine/batch_layout.h"
#include "server/engine/lease.h"

namespace loaderd::engine {
namespace {

constexpr size_t kLoggedBad = 10;  // lines a session; the rest comes as a sum

BatchQueue::Rules RulesOf(const SessionCore::Facts& facts) {
  return {.order = facts.job.order,
          .num_samples = facts.dataset->size(),
          .num_batches = facts.num_batches,
          .batch_size = facts.job.batch_size,
          .slots = facts.slots,
          .present_slots = facts.present_slots,
          .policy = facts.job.on_bad_sample,
          .inline_delivery = facts.inline_delivery,
          .max_storage_failures = facts.max_storage_failures,
          .rooms = facts.rooms};
}

}  // namespace

SessionCore::SessionCore(Facts facts, Grant session, SegmentCharge charge, Rooms rooms)
    : facts_(std::move(facts)),
      segment_fd_(charge.segment().fd()),
      bytes_(charge.segment().bytes()),
      room_bytes_(rooms.bytes()),
      queue_(RulesOf(facts_)),
      session_(std::move(session)),
      charge_(std::move(charge)),
      rooms_(std::move(rooms)) {}

SessionCore::~SessionCore() {
  MutexLock lock(mutex_);
  assert(closed_ && queue_.in_flight() == 0);
}

std::span<const uint8_t> SessionCore::SlotBytes(uint32_t slot) const {
  return slot < facts_.slots ? Slot(slot) : std::span<uint8_t>();
}

Status SessionCore::Start(uint64_t epoch, uint64_t first_batch, uint64_t start, bool goes_on) {
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(queue_.Start(epoch, first_batch, start, goes_on));
  }
  Go(true);
  return absl::OkStatus();
}

Status SessionCore::Want(uint32_t count) {
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(queue_.Want(count));
  }
  Go(false);
  return absl::OkStatus();
}

Status SessionCore::Release(std::span<const uint32_t> slots) {
  Status status;
  {
    MutexLock lock(mutex_);
    status = queue_.Release(slots);
  }
  Go(true);  // those before a wrong one are free
  return status;
}

Status SessionCore::AddIndices(uint64_t start, uint64_t batch, std::span<const int64_t> indices,
                               bool last, bool end) {
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(queue_.AddIndices(start, batch, indices, last, end));
  }
  Go(true);
  return absl::OkStatus();
}

void SessionCore::Go(bool work) {
  if (work) {
    MutexLock lock(mutex_);
    work = !closed_;
  }
  if (work) facts_.fleet->Wake(facts_.id);
  Deliver();
}

void SessionCore::Deliver() {
  mutex_.Lock();
  if (delivering_) {
    mutex_.Unlock();
    return;
  }
  delivering_ = true;
  deliverer_ = std::this_thread::get_id();
  while (std::optional<Delivery> delivery = queue_.NextDelivery()) {
    Count(*delivery);
    const bool freed = !delivery->epoch_end && delivery->handling == Handling::kNone;
    mutex_.Unlock();
    if (freed) facts_.fleet->Wake(facts_.id);
    facts_.events->OnDelivery(*std::move(delivery));
    mutex_.Lock();
  }
  delivering_ = false;
  deliverer_ = {};
  delivered_.NotifyAll();
  mutex_.Unlock();
}

void SessionCore::Count(const Delivery& delivery) {
  bad_samples_ += delivery.bad.size();
  facts_.totals->bad_samples += delivery.bad.size();
  if (delivery.handling == Handling::kNone) return;
  ++batches_delivered_;
  if (delivery.handling == Handling::kCopy) ++batches_copied_;
  samples_delivered_ += delivery.count;
  ++facts_.totals->batches_delivered;
  facts_.totals->samples_delivered += delivery.count;
}

size_t SessionCore::Take(std::span<Piece> pieces) {
  pieces = pieces.first(std::min<size_t>(pieces.size(), facts_.run_length));
  for (;;) {
    uint64_t epoch = 0;
    {
      MutexLock lock(mutex_);
      if (const size_t count = queue_.TakePieces(pieces); count > 0) return count;
      const std::optional<uint64_t> missing = queue_.MissingPlan();
      if (!missing.has_value()) return 0;
      epoch = *missing;
    }
    // A permutation of millions takes a while: without the lock.
    auto plan =
        std::make_unique<const plan::EpochPlan>(facts_.job.order, facts_.dataset->size(),
                                                facts_.job.batch_size, facts_.job.drop_last, epoch);
    MutexLock lock(mutex_);
    queue_.SetPlan(epoch, std::move(plan));
  }
}

void SessionCore::Read(Run& run) {
  for (size_t i = 0; i < run.count;) {
    const Piece piece = run.pieces[i];
    std::string fault;
    bool storage = false;
    if (Wanted(piece)) {
      const Status status = facts_.dataset->Read(piece.index, run.buffers[i]);
      if (status.ok()) {
        ++i;
        continue;
      }
      storage = dataset::IsStorageFault(status);
      fault = std::string(status.message());
      if (fault.empty())
        fault = absl::StrCat(facts_.dataset->Name(piece.index), ": ", status.ToString());
    }
    run.Remove(i);
    End(piece, std::move(fault), storage);
  }
}

SlotRows SessionCore::RowsOf(const Piece& piece) const {
  if (facts_.mix == nullptr) return {facts_.layout, Slot(piece.slot)};
  const uint64_t bytes = facts_.unmixed.slot_bytes;
  return {facts_.unmixed, room_bytes_.subspan(piece.room * bytes, bytes)};
}

void SessionCore::Finish(const Piece& piece, std::span<const uint32_t> lost,
                         uint32_t planned) const {
  const SlotRows rows = RowsOf(piece);
  rows.Remove(lost, planned);
  if (facts_.mix == nullptr || !Wanted(piece)) return;
  const transform::BatchKey key{.seed = facts_.job.order.seed,
                                .epoch = piece.epoch,
                                .step = piece.step,
                                .rank = facts_.job.order.rank};
  MixRows(*facts_.mix, key, rows, {facts_.layout, Slot(piece.slot)},
          planned - static_cast<uint32_t>(lost.size()));
}

void SessionCore::Decode(Run& run, transform::Scratch& scratch) {
  for (size_t i = 0; i < run.count;) {
    const Piece piece = run.pieces[i];
    std::string fault;
    if (Wanted(piece)) {
      const SlotRows rows = RowsOf(piece);
      const transform::SampleKey key{
          .seed = facts_.job.order.seed, .epoch = piece.epoch, .index = piece.index};
      const Status status =
          facts_.recipe->Apply(run.buffers[i].bytes(), key, scratch, rows.image(piece.row));
      if (status.ok()) {
        rows.Describe(piece.row, facts_.dataset->label(piece.index),
                      static_cast<int64_t>(piece.index), piece.pad);
        ++i;
        continue;
      }
      fault = absl::StrCat(facts_.dataset->Name(piece.index), ": ", status.message());
    }
    run.Remove(i);
    End(piece, std::move(fault));
  }
  if (run.count > 0) EndAll(std::span(run.pieces).first(run.count));
}

void SessionCore::EndAll(std::span<const Piece> pieces) {
  BatchQueue::After after = BatchQueue::After::kNothing;
  {
    MutexLock lock(mutex_);
    // The last one that ends decides: before it, the batch has pieces left.
    for (const Piece& piece : pieces) after = std::max(after, queue_.EndPiece(piece, {}));
  }
  FinishIfDue(pieces.front(), after);
}

void SessionCore::End(const Piece& piece, std::string fault, bool storage) {
  if (!fault.empty()) LogBad(piece, fault);
  BatchQueue::After after;
  {
    MutexLock lock(mutex_);
    after = queue_.EndPiece(piece, std::move(fault), storage);
  }
  FinishIfDue(piece, after);
}

void SessionCore::FinishIfDue(const Piece& piece, BatchQueue::After after) {
  if (after == BatchQueue::After::kFinish) {
    std::vector<uint32_t> lost;
    uint32_t rows = 0;
    {
      MutexLock lock(mutex_);
      lost = queue_.LostRows(piece.slot);
      rows = queue_.PlannedRows(piece.slot);
    }
    Finish(piece, lost, rows);
    MutexLock lock(mutex_);
    after = queue_.EndFinish(piece.slot);
  }
  Go(after == BatchQueue::After::kWork);
  Settle();
}

void SessionCore::LogBad(const Piece& piece, const std::string& fault) {
  {
    MutexLock lock(mutex_);
    if (closed_ || logged_.size() >= kLoggedBad ||
        std::ranges::find(logged_, piece.index) != logged_.end())
      return;
    logged_.push_back(piece.index);
  }
  LogWarning(absl::StrCat("session ", facts_.name, " bad sample index=", piece.index, ": ", fault));
}

bool SessionCore::BackNext() {
  std::optional<uint32_t> slot;
  {
    MutexLock lock(mutex_);
    slot = queue_.NextAbsentSlot();
    if (!slot.has_value()) return false;
    backing_ = true;
  }
  const uint64_t bytes = facts_.layout.slot_bytes;
  const Status status = shm::Segment::Back(segment_fd_, *slot * bytes, bytes);
  if (!status.ok()) {
    LogWarning(absl::StrCat("session ", facts_.name, " goes on with ", *slot, " of ", facts_.slots,
                            " slots: ", status.message()));
  }
  bool more = false;
  {
    MutexLock lock(mutex_);
    backing_ = false;
    if (status.ok()) {
      queue_.AddSlot(*slot);
    } else {
      queue_.GiveUpSlots();
    }
    more = queue_.NextAbsentSlot().has_value();
  }
  Go(true);
  Settle();
  return more;
}

std::unique_ptr<SegmentLease> SessionCore::Close() {
  uint64_t unlogged = 0;
  {
    MutexLock lock(mutex_);
    const bool first = !closed_;
    if (first) {
      closed_ = true;
      queue_.Close();
      if (bad_samples_ > logged_.size()) unlogged = bad_samples_;
      lease_ = !facts_.inline_delivery;
      handle_ = facts_.inline_delivery;
    }
    while (delivering_ && deliverer_ != std::this_thread::get_id()) delivered_.Wait(mutex_);
    if (!first) return nullptr;
  }
  if (unlogged > 0)
    LogWarning(absl::StrCat("session ", facts_.name, " bad samples in all: ", unlogged));
  facts_.fleet->Leave(facts_.id);
  Settle();
  if (facts_.inline_delivery) return nullptr;
  return std::make_unique<CoreLease>(shared_from_this());
}

void SessionCore::EndLease() {
  {
    MutexLock lock(mutex_);
    lease_ = false;
  }
  Settle();
}

void SessionCore::EndHandle() {
  {
    MutexLock lock(mutex_);
    handle_ = false;
  }
  Settle();
}

void SessionCore::Settle() {
  Grant session;
  Rooms rooms;
  std::optional<SegmentCharge> charge;
  MutexLock lock(mutex_);  // let go before those above: no unmapping under it
  if (!closed_ || backing_ || queue_.in_flight() > 0) return;
  session = std::move(session_);
  rooms = std::move(rooms_);
  if (handle_ || lease_ || !charge_.has_value()) return;
  charge.swap(charge_);
}

bool SessionCore::listed() const {
  MutexLock lock(mutex_);
  return !closed_ || charge_.has_value();
}

SessionFacts SessionCore::Tell() const {
  SessionFacts facts{.name = facts_.name,
                     .owner = facts_.owner,
                     .dataset = facts_.dataset->path(),
                     .delivery = facts_.inline_delivery ? "inline" : "mapped",
                     .batch_size = facts_.job.batch_size,
                     .slot_bytes = facts_.layout.slot_bytes};
  facts.age_s = std::chrono::duration<double>(facts_.clock->Now() - facts_.opened).count();
  facts.cpu_s = std::chrono::duration<double>(std::chrono::nanoseconds(cpu_ns_.load())).count();
  MutexLock lock(mutex_);
  queue_.Tell(facts);
  facts.batches_delivered = batches_delivered_;
  facts.batches_copied = batches_copied_;
  facts.samples_delivered = samples_delivered_;
  facts.bad_samples = bad_samples_;
  facts.closed = closed_;
  return facts;
}

}  // namespace loaderd::engine
