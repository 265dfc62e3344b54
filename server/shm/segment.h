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
  // `bytes` > 0, a multiple of the page size, of which the first `backed` get their pages now and
  // the others by Back(), before they are written to. `prefaulted`: what Prefault() made, of any
  // size, or none. kResourceExhausted when the kernel has no memory or descriptor for it.
  static StatusOr<Segment> Create(uint64_t bytes, uint64_t backed, UniqueFd prefaulted = {});
  // A memfd with pages, which saves Create() the time to take them. Never one that was handed out.
  static StatusOr<UniqueFd> Prefault(uint64_t bytes);
  // Takes pages of the segment `fd`: what the kernel refuses (strict overcommit) is an error here
  // instead of SIGBUS in a decoder. Any thread, while the segment lives.
  static Status Back(int fd, uint64_t begin, uint64_t bytes);
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
