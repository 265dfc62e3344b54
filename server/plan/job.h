// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/base/spec.h"
#include "server/base/status.h"

namespace loaderd::v1 {
class JobSpec;
class DatasetSpec;
}  // namespace loaderd::v1

namespace loaderd::plan {

enum class OrderKind { kSequential, kTorchShuffle, kExplicit };
enum class ShardRule { kPad, kDrop, kUneven };

struct Order {
  OrderKind kind = OrderKind::kSequential;
  uint64_t seed = 0;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  ShardRule shard = ShardRule::kPad;
};

// What a trainer asked for, validated: past this type no field needs another check.
struct Job {
  DatasetSpec dataset;
  RecipeSpec recipe;
  Order order;
  uint32_t batch_size = 1;
  bool drop_last = false;
  uint32_t prefetch_factor = 2;
  BadSamplePolicy on_bad_sample = BadSamplePolicy::kFail;
  std::optional<BatchStep> batch_transform = std::nullopt;

  // SHA-256 in hex over all that decides what is delivered and in which order, not over
  // prefetch_factor.
  std::string Fingerprint() const;
};

// kInvalidArgument with the field's path ("transform[2].normalize.mean[0]: must be finite, is nan")
// for the first field that is wrong. Pure.
StatusOr<Job> ParseJob(const v1::JobSpec& spec);
// The JSON form (proto3 JSON mapping). An unknown field, a wrong type or text that is no JSON is
// kInvalidArgument naming it.
StatusOr<Job> ParseJobJson(std::string_view json);
StatusOr<DatasetSpec> ParseDataset(const v1::DatasetSpec& spec);
StatusOr<DatasetSpec> ParseDatasetJson(std::string_view json);

}  // namespace loaderd::plan
