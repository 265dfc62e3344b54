// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "server/base/status.h"
#include "server/plan/epoch_plan.h"

namespace loaderd::engine {

// Explicit order: the indices that the client has streamed and that no batch has taken yet. Not
// thread-safe.
class IndexFeed {
 public:
  static constexpr uint64_t kMaxAhead = 1 << 20;

  IndexFeed(uint64_t num_samples, uint32_t batch_size)
      : num_samples_(num_samples), batch_size_(batch_size) {}

  // What was fed is dropped; batch `first_batch` comes next.
  void Restart(uint64_t start, uint64_t first_batch);

  // As Session::AddIndices. A call that is refused changes nothing.
  Status Add(uint64_t start, uint64_t batch, std::span<const int64_t> indices, bool last, bool end);

  // The next whole batch, or false: it has not come yet, or the epoch has ended. `out` is replaced.
  bool TakeBatch(std::vector<plan::PlannedSample>& out);
  // Number of the batch after the last one, once the client has told the end.
  std::optional<uint64_t> end() const { return end_; }

 private:
  Status Check(uint64_t batch, std::span<const int64_t> indices, bool last, bool end) const;

  const uint64_t num_samples_;
  const uint32_t batch_size_;
  bool started_ = false;
  uint64_t start_ = 0;
  uint64_t open_batch_ = 0;     // takes the indices that come next
  std::vector<uint64_t> open_;  // its indices so far
  std::deque<std::vector<uint64_t>> whole_;
  uint64_t ahead_ = 0;  // indices in open_ and whole_
  std::optional<uint64_t> end_;
};

}  // namespace loaderd::engine
