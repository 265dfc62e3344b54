// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace loaderd::shm {

//            Acquire            MarkReady           Lend              Release
//   FREE ------------> FILLING ------------> READY ------> LENT ------------> FREE
//     ^                   |   Drop              |  Drop
//     +-------------------+---------------------+
// ABSENT: without pages yet; Add makes it FREE, or GiveUp makes it GONE.
enum class SlotState : uint8_t { kFree, kFilling, kReady, kLent, kAbsent, kGone };

// Which slot of a segment is in which state. The state lives here, in private memory, never in the
// segment. Not thread-safe: its session's lock guards it. A call from a wrong state returns false
// and changes nothing: a client's Release is untrusted.
class SlotPool {
 public:
  // The first `present` of them, one at least, are FREE and the others ABSENT.
  SlotPool(uint32_t slots, uint32_t present);
  explicit SlotPool(uint32_t slots) : SlotPool(slots, slots) {}

  std::optional<uint32_t> NextAbsent() const;
  bool Add(uint32_t slot);
  void GiveUp();  // all that are ABSENT

  std::optional<uint32_t> Acquire();
  bool MarkReady(uint32_t slot);
  bool Lend(uint32_t slot);
  bool Release(uint32_t slot);
  bool Drop(uint32_t slot);  // FILLING or READY -> FREE

  uint32_t size() const { return static_cast<uint32_t>(states_.size()); }
  uint32_t count(SlotState state) const { return counts_[static_cast<size_t>(state)]; }
  SlotState state(uint32_t slot) const { return states_[slot]; }
  // No slot but at most one is left that nobody holds: the next delivery must be COPY, so that
  // filling can go on.
  bool LastUnheld() const {
    return count(SlotState::kLent) + 1 >= size() - count(SlotState::kGone);
  }
  // Whether the next one is the last depends on slots that are still ABSENT.
  bool Undecided() const {
    return !LastUnheld() && count(SlotState::kLent) + 1 + count(SlotState::kAbsent) >=
                                size() - count(SlotState::kGone);
  }

 private:
  bool Move(uint32_t slot, SlotState from, SlotState to);
  std::vector<SlotState> states_;
  uint32_t counts_[6] = {};
};

}  // namespace loaderd::shm
