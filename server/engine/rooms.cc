// SPDX-License-Identifier: Apache-2.0
#include "server/engine/rooms.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace loaderd::engine {

StatusOr<Rooms> Rooms::Create(Grant bytes, uint32_t rooms, uint64_t room_bytes) {
  if (rooms == 0) return Rooms();
  const uint64_t size = rooms * room_bytes;
  std::unique_ptr<uint8_t[]> memory(new (std::nothrow) uint8_t[size]);
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("batch_transform: the daemon's machine has no ", size,
                     " bytes for batches that are to be mixed; ask for a smaller batch_size"));
  }
  return Rooms(std::move(bytes), std::move(memory), size);
}

uint32_t RoomsWanted(uint32_t reads, uint32_t batch_size, uint32_t slots) {
  const uint64_t spread = (uint64_t{reads} + batch_size - 1) / batch_size;
  return static_cast<uint32_t>(std::min<uint64_t>(slots, spread + 1));
}

void MixRows(const transform::BatchMix& mix, const transform::BatchKey& key, const SlotRows& room,
             const SlotRows& slot, uint32_t count) {
  mix.Apply(key,
            {.count = count,
             .images = room.field(SlotRows::kImages, count),
             .labels = room.field(SlotRows::kLabels, count)},
            {.images = slot.field(SlotRows::kImages, count),
             .labels = slot.field(SlotRows::kLabels, count)});
  for (const size_t field : {SlotRows::kIndex, SlotRows::kPad}) {
    const std::span<const uint8_t> from = room.field(field, count);
    std::memcpy(slot.field(field, count).data(), from.data(), from.size());
  }
}

}  // namespace loaderd::engine
