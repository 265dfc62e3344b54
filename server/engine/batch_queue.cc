// SPDX-License-Identifier: Apache-2.0
#include "server/engine/batch_queue.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace loaderd::engine {
namespace {

constexpr uint32_t kMaxWant = 1024;
constexpr int kStandIns = 8;

}  // namespace

BatchQueue::BatchQueue(const Rules& rules)
    : rules_(rules),
      pool_(rules.slots, std::min(rules.slots, rules.present_slots)),
      feed_(rules.num_samples, rules.batch_size),
      batches_(rules.slots) {
  for (uint32_t room = rules.rooms; room > 0; --room) free_rooms_.push_back(room - 1);
}

Status BatchQueue::Start(uint64_t epoch, uint64_t first_batch, uint64_t start, bool goes_on) {
  if (!is_explicit() && first_batch > rules_.num_batches) {
    return absl::InvalidArgumentError(absl::StrCat("start_epoch: first_batch ", first_batch,
                                                   " is past the ", rules_.num_batches,
                                                   " batches of an epoch"));
  }
  // Explicit batches are never kept: the indices that the client sends next may differ.
  const auto kept = std::find_if(order_.begin(), order_.end(), [&](uint32_t slot) {
    return !is_explicit() && batches_[slot].epoch == epoch && batches_[slot].step == first_batch;
  });
  std::for_each(order_.begin(), kept, [&](uint32_t slot) { Drop(slot); });
  order_.erase(order_.begin(), kept);
  while (!order_.empty() && batches_[order_.back()].epoch != epoch && !goes_on) {
    Drop(order_.back());
    order_.pop_back();
  }
  plan_at_ = {epoch, first_batch};
  if (!order_.empty()) plan_at_ = {batches_[order_.back()].epoch, batches_[order_.back()].step + 1};
  if (is_explicit()) feed_.Restart(start, first_batch);
  started_ = true;
  start_ = start;
  epoch_ = epoch;
  next_ = first_batch;
  goes_on_ = goes_on;
  ended_ = false;
  want_ = 0;
  return absl::OkStatus();
}

Status BatchQueue::Want(uint32_t count) {
  if (count == 0 || count > kMaxWant - want_) {
    return absl::InvalidArgumentError(absl::StrCat("want: ", count, " more deliveries after ",
                                                   want_, " outstanding; 1 to ", kMaxWant,
                                                   " may be"));
  }
  want_ += count;
  return absl::OkStatus();
}

Status BatchQueue::Release(std::span<const uint32_t> slots) {
  for (const uint32_t slot : slots) {
    if (!pool_.Release(slot)) {
      return absl::InvalidArgumentError(
          absl::StrCat("release: slot ", slot, " of ", pool_.size(), " is not lent"));
    }
  }
  return absl::OkStatus();
}

Status BatchQueue::AddIndices(uint64_t start, uint64_t batch, std::span<const int64_t> indices,
                              bool last, bool end) {
  if (!is_explicit()) {
    return absl::InvalidArgumentError("indices: only a job with order.kind EXPLICIT takes them");
  }
  return feed_.Add(start, batch, indices, last, end);
}

void BatchQueue::Close() {
  closed_ = true;
  for (const uint32_t slot : order_) Drop(slot);
  order_.clear();
  plans_.clear();
}

std::optional<Piece> BatchQueue::TakePiece() {
  if (closed_ || !started_) return std::nullopt;
  if (!stand_ins_.empty()) {
    const Piece piece = stand_ins_.front();
    stand_ins_.pop_front();
    ++batches_[piece.slot].in_flight;
    ++in_flight_;
    return piece;
  }
  do {
    if (order_.empty()) continue;
    const Batch& last = batches_[order_.back()];
    if (last.next_row < last.samples.size()) return TakeRow(order_.back());
  } while (PlanBatch());
  return std::nullopt;
}

size_t BatchQueue::TakePieces(std::span<Piece> pieces) {
  size_t count = 0;
  while (count < pieces.size()) {
    // What was taken decides the batch; a stand-in travels alone.
    if (count > 0 && !stand_ins_.empty()) break;
    if (count > 0 && (order_.empty() || order_.back() != pieces[0].slot ||
                      batches_[order_.back()].next_row >= batches_[order_.back()].samples.size())) {
      break;
    }
    const std::optional<Piece> piece = TakePiece();
    if (!piece.has_value()) break;
    pieces[count++] = *piece;
    if (piece->attempt >= 0) break;
  }
  return count;
}

Piece BatchQueue::TakeRow(uint32_t slot) {
  Batch& batch = batches_[slot];
  const uint32_t row = batch.next_row++;
  const plan::PlannedSample& sample = batch.samples[row];
  ++batch.in_flight;
  ++in_flight_;
  return {.slot = slot,
          .row = row,
          .epoch = batch.epoch,
          .step = batch.step,
          .index = sample.index,
          .planned = sample.index,
          .pad = sample.pad,
          .room = batch.room.value_or(0)};
}

std::optional<BatchQueue::Place> BatchQueue::NextPlace() const {
  if (closed_ || !started_ || pool_.count(shm::SlotState::kFree) == 0) return std::nullopt;
  if (rules_.rooms > 0 && free_rooms_.empty()) return std::nullopt;
  if (is_explicit() || plan_at_.step < rules_.num_batches) return plan_at_;
  // One epoch ahead at most, so that what is planned is always of two epochs.
  if (goes_on_ && plan_at_.epoch == epoch_ && rules_.num_batches > 0) return Place{epoch_ + 1, 0};
  return std::nullopt;
}

const plan::EpochPlan* BatchQueue::FindPlan(uint64_t epoch) const {
  const auto it = std::ranges::find(plans_, epoch, &Plan::epoch);
  return it == plans_.end() ? nullptr : it->plan.get();
}

std::optional<uint64_t> BatchQueue::MissingPlan() const {
  if (is_explicit()) return std::nullopt;
  const std::optional<Place> place = NextPlace();
  if (!place.has_value() || FindPlan(place->epoch) != nullptr) return std::nullopt;
  return place->epoch;
}

void BatchQueue::SetPlan(uint64_t epoch, std::unique_ptr<const plan::EpochPlan> plan) {
  if (closed_) return;
  plans_.push_back({epoch, std::move(plan)});
  std::erase_if(plans_,
                [&](const Plan& kept) { return kept.epoch != epoch_ && kept.epoch != epoch_ + 1; });
}

bool BatchQueue::PlanBatch() {
  const std::optional<Place> place = NextPlace();
  if (!place.has_value()) return false;
  const plan::EpochPlan* plan = is_explicit() ? nullptr : FindPlan(place->epoch);
  if (!is_explicit() && plan == nullptr) return false;

  const uint32_t slot = *pool_.Acquire();
  Batch& batch = batches_[slot];
  if (plan != nullptr) {
    plan->Batch(place->step, batch.samples);
  } else if (!feed_.TakeBatch(batch.samples)) {
    pool_.Drop(slot);
    return false;
  }
  assert(!batch.samples.empty() && batch.samples.size() <= rules_.batch_size);
  if (rules_.rooms > 0) {
    batch.room = free_rooms_.back();
    free_rooms_.pop_back();
  }
  batch.epoch = place->epoch;
  batch.step = place->step;
  batch.next_row = 0;
  batch.in_flight = 0;
  batch.left = static_cast<uint32_t>(batch.samples.size());
  batch.ready = batch.storage_gone = false;
  batch.dropped = false;
  batch.bad.clear();
  order_.push_back(slot);
  plan_at_ = {place->epoch, place->step + 1};
  return true;
}

bool BatchQueue::Wanted(const Piece& piece) const { return !batches_[piece.slot].dropped; }

void BatchQueue::Drop(uint32_t slot) {
  batches_[slot].dropped = true;
  std::erase_if(stand_ins_, [&](const Piece& piece) { return piece.slot == slot; });
  FreeIfDropped(slot);
}

bool BatchQueue::LeaveRoom(Batch& batch) {
  if (!batch.room.has_value()) return false;
  free_rooms_.push_back(*batch.room);
  batch.room.reset();
  return true;
}

bool BatchQueue::FreeIfDropped(uint32_t slot) {
  Batch& batch = batches_[slot];
  if (!batch.dropped || batch.in_flight > 0) return false;
  LeaveRoom(batch);
  pool_.Drop(slot);
  return true;
}

BatchQueue::After BatchQueue::EndPiece(const Piece& piece, std::string fault, bool storage) {
  Batch& batch = batches_[piece.slot];
  // A dropped piece was perhaps not read at all.
  if (!batch.dropped) storage_failures_ = storage ? storage_failures_ + 1 : 0;
  --batch.in_flight;
  --in_flight_;
  if (batch.dropped) return FreeIfDropped(piece.slot) ? After::kWork : After::kNothing;
  if (!fault.empty()) return RecordFault(piece, std::move(fault));
  if (piece.attempt >= 0) {
    Bad& bad = batch.bad[piece.bad];
    bad.lost = false;
    bad.sample.substitute = static_cast<int64_t>(piece.index);
  }
  return --batch.left == 0 ? Complete(piece.slot) : After::kNothing;
}

BatchQueue::After BatchQueue::RecordFault(const Piece& piece, std::string fault) {
  Batch& batch = batches_[piece.slot];
  Piece next = piece;
  if (piece.attempt < 0) {
    next.bad = batch.bad.size();
    batch.bad.push_back(
        {.row = piece.row,
         .sample = {.index = static_cast<int64_t>(piece.planned), .reason = std::move(fault)}});
  }
  if (rules_.policy == BadSamplePolicy::kSubstitute && piece.attempt + 1 < kStandIns &&
      !StorageGone()) {
    ++next.attempt;
    next.index =
        plan::Substitute(rules_.num_samples, rules_.order.seed, piece.planned, next.attempt);
    stand_ins_.push_back(next);
    return After::kWork;
  }
  return --batch.left == 0 ? Complete(piece.slot) : After::kNothing;
}

bool BatchQueue::FailsWhole(const Batch& batch) const {
  return (rules_.policy != BadSamplePolicy::kSkip || batch.storage_gone) &&
         std::ranges::any_of(batch.bad, &Bad::lost);
}

BatchQueue::After BatchQueue::Complete(uint32_t slot) {
  Batch& batch = batches_[slot];
  std::ranges::sort(batch.bad, {}, &Bad::row);
  batch.storage_gone = StorageGone();
  if (!FailsWhole(batch) && (rules_.rooms > 0 || std::ranges::any_of(batch.bad, &Bad::lost))) {
    ++batch.in_flight;
    ++in_flight_;
    return After::kFinish;
  }
  batch.ready = true;
  pool_.MarkReady(slot);
  return LeaveRoom(batch) ? After::kWork : After::kNothing;
}

std::vector<uint32_t> BatchQueue::LostRows(uint32_t slot) const {
  std::vector<uint32_t> rows;
  for (const Bad& bad : batches_[slot].bad) {
    if (bad.lost) rows.push_back(bad.row);
  }
  return rows;
}

uint32_t BatchQueue::PlannedRows(uint32_t slot) const {
  return static_cast<uint32_t>(batches_[slot].samples.size());
}

BatchQueue::After BatchQueue::EndFinish(uint32_t slot) {
  Batch& batch = batches_[slot];
  --batch.in_flight;
  --in_flight_;
  if (batch.dropped) return FreeIfDropped(slot) ? After::kWork : After::kNothing;
  batch.ready = true;
  pool_.MarkReady(slot);
  return LeaveRoom(batch) ? After::kWork : After::kNothing;
}

std::optional<Delivery> BatchQueue::NextDelivery() {
  if (closed_ || !started_ || ended_ || want_ == 0) return std::nullopt;
  const std::optional<uint64_t> end = is_explicit() ? feed_.end() : rules_.num_batches;
  if (next_ == end) {
    ended_ = true;
    --want_;
    return Delivery{.start = start_, .epoch = epoch_, .epoch_end = true, .num_batches = next_};
  }
  if (order_.empty()) return std::nullopt;
  const uint32_t slot = order_.front();
  if (!batches_[slot].ready) return std::nullopt;
  // A moment: their pages are being taken.
  if (!rules_.inline_delivery && pool_.Undecided()) return std::nullopt;
  assert(batches_[slot].epoch == epoch_ && batches_[slot].step == next_);
  order_.pop_front();
  --want_;
  ++next_;
  return Deliver(slot);
}

Delivery BatchQueue::Deliver(uint32_t slot) {
  Batch& batch = batches_[slot];
  Delivery delivery{.start = start_, .epoch = batch.epoch, .step = batch.step};
  const bool fails = FailsWhole(batch);
  uint32_t lost = 0;
  for (Bad& bad : batch.bad) {
    if (bad.lost && lost++ == 0 && fails) {
      delivery.error = absl::StrCat("batch ", batch.step, ": ", bad.sample.reason);
      delivery.storage_gone = batch.storage_gone;
    }
    delivery.bad.push_back(std::move(bad.sample));
  }
  if (delivery.storage_gone) {
    absl::StrAppend(&delivery.error, "; ", lost, " of its samples are lost, and more than ",
                    rules_.max_storage_failures, " reads in a row failed so: the storage is gone");
  }
  if (fails) {
    pool_.Drop(slot);
    return delivery;
  }
  delivery.slot = slot;
  delivery.count = static_cast<uint32_t>(batch.samples.size()) - lost;
  delivery.handling = rules_.inline_delivery ? Handling::kInline
                      : pool_.LastUnheld()   ? Handling::kCopy
                                             : Handling::kLend;
  pool_.Lend(slot);
  return delivery;
}

void BatchQueue::Tell(SessionFacts& facts) const {
  facts.epoch = epoch_;
  facts.next_batch = next_;
  facts.num_batches = is_explicit() ? feed_.end().value_or(0) : rules_.num_batches;
  facts.slots = pool_.size() - pool_.count(shm::SlotState::kGone);
  facts.slots_free = pool_.count(shm::SlotState::kFree) + pool_.count(shm::SlotState::kAbsent);
  facts.slots_filling = pool_.count(shm::SlotState::kFilling);
  facts.slots_ready = pool_.count(shm::SlotState::kReady);
  facts.slots_lent = pool_.count(shm::SlotState::kLent);
}

}  // namespace loaderd::engine
