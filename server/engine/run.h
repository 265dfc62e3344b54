// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/base/byte_buffer.h"
#include "server/base/clock.h"
#include "server/engine/batch_queue.h"
#include "server/engine/turns.h"

namespace loaderd::engine {

class Workload;

// Some pieces of one batch on their way, each with the buffer of its encoded bytes: they are read
// by one reader and decoded by one decoder, so that locks and wake-ups come once for all of them.
struct Run {
  static constexpr size_t kMost = 8;

  std::array<Piece, kMost> pieces;
  // Not all need be there: those in front are. They stay with the run when its pieces change.
  std::array<ByteBuffer, kMost> buffers;
  size_t count = 0;
  Turn turn;                       // in which its pieces were taken
  std::shared_ptr<Workload> work;  // shared with the fleet's list, see Fleet::Join
  std::unique_ptr<Run> next;

  // Takes out piece `i`; the order of the others may change.
  void Remove(size_t i) {
    --count;
    std::swap(pieces[i], pieces[count]);
    std::swap(buffers[i], buffers[count]);
  }
  size_t capacity() const {
    size_t bytes = 0;
    for (const ByteBuffer& buffer : buffers) bytes += buffer.capacity();
    return bytes;
  }
};

// The one with the least tag goes first, and of those that are even the first in; allocates
// nothing. Not thread-safe.
class RunQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  void Push(std::unique_ptr<Run> run) {
    std::unique_ptr<Run>* place = &first_;
    while (*place != nullptr && (*place)->turn.tag <= run->turn.tag) place = &(*place)->next;
    run->next = std::move(*place);
    *place = std::move(run);
  }
  std::unique_ptr<Run> Pop() {
    std::unique_ptr<Run> run = std::move(first_);
    first_ = std::move(run->next);
    return run;
  }

 private:
  std::unique_ptr<Run> first_;
};

// The runs: so many and no more, the last one back being the first to go out again. One that has
// grown large gives its memory back when nobody has used it for a second. Not thread-safe.
class RunPool {
 public:
  static constexpr size_t kLargeBytes = 4 << 20;
  static constexpr std::chrono::seconds kKept{1};

  explicit RunPool(size_t runs) : left_(runs) { idle_.reserve(runs); }

  bool empty() const { return left_ == 0; }
  std::unique_ptr<Run> Take() {
    --left_;
    if (idle_.empty()) return std::make_unique<Run>();
    std::unique_ptr<Run> run = std::move(idle_.back().run);
    idle_.pop_back();
    return run;
  }
  void Return(std::unique_ptr<Run> run, Clock::Time now) {
    ++left_;
    run->count = 0;
    idle_.push_back({std::move(run), now});
  }

  bool holds_large() const {
    return std::any_of(idle_.begin(), idle_.end(),
                       [](const Idle& idle) { return idle.run->capacity() > kLargeBytes; });
  }
  // Takes out the large ones that have been idle for long, one after the other; the caller frees
  // them when it holds no lock.
  std::unique_ptr<Run> TakeStale(Clock::Time now) {
    std::unique_ptr<Run> stale;
    for (Idle& idle : idle_) {
      if (idle.run->capacity() <= kLargeBytes || now - idle.since < kKept) continue;
      idle.run->next = std::move(stale);
      stale = std::exchange(idle.run, std::make_unique<Run>());
    }
    return stale;
  }

 private:
  struct Idle {
    std::unique_ptr<Run> run;
    Clock::Time since;
  };
  size_t left_;
  std::vector<Idle> idle_;
};

}  // namespace loaderd::engine
