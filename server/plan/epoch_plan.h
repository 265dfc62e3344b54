// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "server/base/status.h"
#include "server/plan/job.h"

namespace loaderd::plan {

struct PlannedSample {
  uint64_t index = 0;
  bool pad = false;  // repeated only to give every rank as many samples
};

// Which samples form batch k of one epoch on one rank: a pure function of (n, order, batch size,
// drop_last, epoch). The shuffle is torch's: randperm(n) of a generator seeded with seed + epoch
// (MT19937, see epoch_plan.cc), dealt out as torch.utils.data.DistributedSampler does. Immutable;
// any number of threads may read it.
class EpochPlan {
 public:
  // order.kind is not kExplicit. n may be 0 here; opening such a job is refused by CheckNotEmpty.
  EpochPlan(const Order& order, uint64_t n, uint32_t batch_size, bool drop_last, uint64_t epoch);

  uint64_t num_samples() const {
    return num_samples_;
  }  // of this rank, padding counted, before drop_last
  uint64_t num_batches() const { return num_batches_; }
  // Samples of batch `k` < num_batches(), in order; replaces what `out` held.
  void Batch(uint64_t k, std::vector<PlannedSample>& out) const;

  // The sums alone, without making the permutation.
  static uint64_t NumSamples(const Order& order, uint64_t n);
  static uint64_t NumBatches(const Order& order, uint64_t n, uint32_t batch_size, bool drop_last);

 private:
  uint64_t n_;
  Order order_;
  uint32_t batch_size_;
  uint64_t num_samples_;
  uint64_t num_batches_;
  std::vector<uint32_t> permutation_;  // empty when sequential
};

// kInvalidArgument when the dataset is empty or drop_last or the shard rule leaves no batch, saying
// which and the numbers.
Status CheckNotEmpty(const Order& order, uint64_t n, uint32_t batch_size, bool drop_last);

// The index whose data stands in for a bad sample: a pure function of (index, attempt), attempt
// 0..7, uniform over 0..n-1.
uint64_t Substitute(uint64_t n, uint64_t seed, uint64_t index, int attempt);

}  // namespace loaderd::plan
