// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "server/base/budget.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/engine/batch_layout.h"
#include "server/transform/batch_mix.h"

namespace loaderd::engine {

// Where a session that mixes its batches makes them: whole batches before mixing, in memory of the
// daemon alone, because a client can write into its slots and so nothing may be read from there.
// The memory is had once, at open, and the kernel gives a page of it at its first use.
class Rooms {
 public:
  Rooms() = default;  // none
  // kResourceExhausted where the machine has no such memory.
  static StatusOr<Rooms> Create(Grant bytes, uint32_t rooms, uint64_t room_bytes);
  Rooms(Rooms&&) = default;
  Rooms& operator=(Rooms&&) = default;

  std::span<uint8_t> bytes() const { return {bytes_.get(), size_}; }  // room after room

 private:
  Rooms(Grant grant, std::unique_ptr<uint8_t[]> bytes, uint64_t size)
      : grant_(std::move(grant)), bytes_(std::move(bytes)), size_(size) {}
  Grant grant_;
  std::unique_ptr<uint8_t[]> bytes_;  // after the Grant: it goes before it does
  uint64_t size_ = 0;
};

// How many rooms keep a fleet busy: one that is mixed, and those that `reads`, all that can be in
// flight at once, are spread over.
uint32_t RoomsWanted(uint32_t reads, uint32_t batch_size, uint32_t slots);

// Mixes the first `count` rows of a room into a slot, with their indices and flags.
void MixRows(const transform::BatchMix& mix, const transform::BatchKey& key, const SlotRows& room,
             const SlotRows& slot, uint32_t count);

}  // namespace loaderd::engine
