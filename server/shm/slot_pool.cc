// SPDX-License-Identifier: Apache-2.0
#include "server/shm/slot_pool.h"

#include <algorithm>

namespace loaderd::shm {

SlotPool::SlotPool(uint32_t slots, uint32_t present) : states_(slots, SlotState::kAbsent) {
  counts_[static_cast<size_t>(SlotState::kAbsent)] = slots;
  for (uint32_t slot = 0; slot < present; ++slot) Add(slot);
}

std::optional<uint32_t> SlotPool::NextAbsent() const {
  const auto it = std::find(states_.begin(), states_.end(), SlotState::kAbsent);
  if (it == states_.end()) return std::nullopt;
  return static_cast<uint32_t>(it - states_.begin());
}

bool SlotPool::Add(uint32_t slot) { return Move(slot, SlotState::kAbsent, SlotState::kFree); }

void SlotPool::GiveUp() {
  for (uint32_t slot = 0; slot < size(); ++slot) {
    Move(slot, SlotState::kAbsent, SlotState::kGone);
  }
}

bool SlotPool::Move(uint32_t slot, SlotState from, SlotState to) {
  if (slot >= states_.size() || states_[slot] != from) return false;
  states_[slot] = to;
  --counts_[static_cast<size_t>(from)];
  ++counts_[static_cast<size_t>(to)];
  return true;
}

std::optional<uint32_t> SlotPool::Acquire() {
  if (count(SlotState::kFree) == 0) return std::nullopt;
  // The lowest free slot: its pages are the likeliest to be in a cache.
  const auto it = std::find(states_.begin(), states_.end(), SlotState::kFree);
  const auto slot = static_cast<uint32_t>(it - states_.begin());
  Move(slot, SlotState::kFree, SlotState::kFilling);
  return slot;
}

bool SlotPool::MarkReady(uint32_t slot) {
  return Move(slot, SlotState::kFilling, SlotState::kReady);
}
bool SlotPool::Lend(uint32_t slot) { return Move(slot, SlotState::kReady, SlotState::kLent); }
bool SlotPool::Release(uint32_t slot) { return Move(slot, SlotState::kLent, SlotState::kFree); }
bool SlotPool::Drop(uint32_t slot) {
  return Move(slot, SlotState::kFilling, SlotState::kFree) ||
         Move(slot, SlotState::kReady, SlotState::kFree);
}

}  // namespace loaderd::shm
