// SPDX-License-Identifier: Apache-2.0
#include "server/plan/epoch_plan.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "server/plan/torch_shuffle.h"

namespace loaderd::plan {
namespace {

constexpr uint64_t kMaxSamples = UINT32_MAX;  // a permutation holds 32-bit indices

uint64_t CeilDiv(uint64_t value, uint64_t by) { return value / by + (value % by != 0); }

// SplitMix64's finaliser (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// 2014; Stafford's mix 13).
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;  // SplitMix64's increment

}  // namespace

uint64_t EpochPlan::NumSamples(const Order& order, uint64_t n) {
  switch (order.shard) {
    case ShardRule::kPad: return CeilDiv(n, order.world_size);
    case ShardRule::kDrop: return n / order.world_size;
    case ShardRule::kUneven: return n / order.world_size + (order.rank < n % order.world_size);
  }
  return 0;
}

uint64_t EpochPlan::NumBatches(const Order& order, uint64_t n, uint32_t batch_size,
                               bool drop_last) {
  const uint64_t samples = NumSamples(order, n);
  return drop_last ? samples / batch_size : CeilDiv(samples, batch_size);
}

EpochPlan::EpochPlan(const Order& order, uint64_t n, uint32_t batch_size, bool drop_last,
                     uint64_t epoch)
    : n_(n),
      order_(order),
      batch_size_(batch_size),
      num_samples_(NumSamples(order, n)),
      num_batches_(NumBatches(order, n, batch_size, drop_last)) {
  assert(order.kind != OrderKind::kExplicit);
  assert(n <= kMaxSamples);
  if (order.kind == OrderKind::kTorchShuffle) permutation_ = TorchRandperm(n, order.seed + epoch);
}

void EpochPlan::Batch(uint64_t k, std::vector<PlannedSample>& out) const {
  assert(k < num_batches_);
  const uint64_t begin = k * batch_size_;
  const uint64_t end = std::min(begin + batch_size_, num_samples_);
  out.clear();
  for (uint64_t i = begin; i < end; ++i) {
    // DistributedSampler deals the padded list out one by one; padding repeats the list from its
    // start, as often as it takes.
    const uint64_t place = order_.rank + i * order_.world_size;
    const uint64_t wrapped = place % n_;
    out.push_back(
        {.index = permutation_.empty() ? wrapped : permutation_[wrapped], .pad = place >= n_});
  }
}

Status CheckNotEmpty(const Order& order, uint64_t n, uint32_t batch_size, bool drop_last) {
  if (n == 0) return absl::InvalidArgumentError("dataset: has no samples");
  if (n > kMaxSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("dataset: has ", n, " samples; at most ", kMaxSamples, " can be ordered"));
  }
  if (order.kind == OrderKind::kExplicit) return absl::OkStatus();
  const uint64_t samples = EpochPlan::NumSamples(order, n);
  if (samples == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("order.shard: ", order.shard == ShardRule::kDrop ? "DROP" : "UNEVEN",
                     " leaves rank ", order.rank, " of ", order.world_size, " no sample of ", n,
                     "; SHARD_RULE_PAD gives every rank as many"));
  }
  if (EpochPlan::NumBatches(order, n, batch_size, drop_last) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("drop_last: leaves no batch: rank ", order.rank, " of ", order.world_size,
                     " has ", samples, " of ", n, " samples and batch_size is ", batch_size));
  }
  return absl::OkStatus();
}

uint64_t Substitute(uint64_t n, uint64_t seed, uint64_t index, int attempt) {
  assert(n > 0 && attempt >= 0 && attempt < 8);
  uint64_t state = Mix(seed + kGolden);
  state = Mix((state ^ index) + kGolden);
  state = Mix((state ^ static_cast<uint64_t>(attempt)) + kGolden);
  // Lemire, "Fast random integer generation in an interval" (2019), without its rejection: the bias
  // is below n / 2^64.
  return static_cast<uint64_t>(static_cast<unsigned __int128>(state) * n >> 64);
}

}  // namespace loaderd::plan
