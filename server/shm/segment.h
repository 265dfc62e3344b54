// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "server/base/status.h"
#include "server/base/unique_fd.h"

namespace loaderd::shm {

// The memfd of a session: made, sized, mapped and sealed (F_SEAL_SHRINK | F_SEAL_GROW |
// F_SEAL_SEAL) by the daemon, handed to one process. It holds payload only and has no name in any
// file system. Owns the descriptor and the mapping.
class Segment {
 public:
  // `bytes` > 0, a multiple of the page size. kResourceExhausted when the kernel has no memory or
  // descriptor for it.
  static StatusOr<Segment> Create(uint64_t bytes);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  int fd() const { return fd_.get(); }
  std::span<uint8_t> bytes() const { return bytes_; }
  // Gives the pages back to the machine although somebody may still map them: they read as zeros
  // from then on.
  void Punch();

 private:
  Segment(UniqueFd fd, std::span<uint8_t> bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  UniqueFd fd_;
  std::span<uint8_t> bytes_;
};

}  // namespace loaderd::shm
