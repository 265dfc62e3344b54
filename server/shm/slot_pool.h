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
enum class SlotState : uint8_t { kFree, kFilling, kReady, kLent };

// Which slot of a segment is in which state. The state lives here, in private memory, never in the
// segment. Not thread-safe: its session's lock guards it. A call from a wrong state returns false
// and changes nothing: a client's Release is untrusted.
class SlotPool {
 public:
  explicit SlotPool(uint32_t slots);

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
  bool LastUnheld() const { return count(SlotState::kLent) + 1 >= size(); }

 private:
  bool Move(uint32_t slot, SlotState from, SlotState to);
  std::vector<SlotState> states_;
  uint32_t counts_[4] = {};
};

}  // namespace loaderd::shm
