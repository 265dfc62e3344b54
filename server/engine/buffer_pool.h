// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/base/byte_buffer.h"
#include "server/base/clock.h"

namespace loaderd::engine {

// The buffers of encoded samples: so many and no more, the last one back being the first to go out
// again. One that has grown large gives its memory back when nobody has used it for a second. Not
// thread-safe.
class BufferPool {
 public:
  static constexpr size_t kLargeBytes = 4 << 20;
  static constexpr std::chrono::seconds kKept{1};

  explicit BufferPool(uint32_t buffers) : left_(buffers) {}

  bool empty() const { return left_ == 0; }
  std::unique_ptr<ByteBuffer> Take() {
    --left_;
    if (idle_.empty()) return std::make_unique<ByteBuffer>();
    std::unique_ptr<ByteBuffer> buffer = std::move(idle_.back().buffer);
    idle_.pop_back();
    return buffer;
  }
  void Return(std::unique_ptr<ByteBuffer> buffer, Clock::Time now) {
    ++left_;
    idle_.push_back({std::move(buffer), now});
  }

  bool holds_large() const {
    for (const Idle& idle : idle_) {
      if (idle.buffer->capacity() > kLargeBytes) return true;
    }
    return false;
  }
  // Takes out the large ones that have been idle for long; the caller frees them when it holds no
  // lock.
  std::vector<std::unique_ptr<ByteBuffer>> TakeStale(Clock::Time now) {
    std::vector<std::unique_ptr<ByteBuffer>> stale;
    for (Idle& idle : idle_) {
      if (idle.buffer->capacity() <= kLargeBytes || now - idle.since < kKept) continue;
      stale.push_back(std::exchange(idle.buffer, std::make_unique<ByteBuffer>()));
    }
    return stale;
  }

 private:
  struct Idle {
    std::unique_ptr<ByteBuffer> buffer;
    Clock::Time since;
  };
  uint32_t left_;
  std::vector<Idle> idle_;
};

}  // namespace loaderd::engine
