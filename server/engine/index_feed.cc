// SPDX-License-Identifier: Apache-2.0
#include "server/engine/index_feed.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace loaderd::engine {

void IndexFeed::Restart(uint64_t start, uint64_t first_batch) {
  started_ = true;
  start_ = start;
  open_batch_ = first_batch;
  open_.clear();
  whole_.clear();
  ahead_ = 0;
  end_.reset();
}

Status IndexFeed::Check(uint64_t batch, std::span<const int64_t> indices, bool last,
                        bool end) const {
  const std::string where = absl::StrCat("indices of batch ", batch);
  if (end_.has_value())
    return absl::InvalidArgumentError(absl::StrCat(where, ": came after the end"));
  if (batch != open_batch_) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": batch ", open_batch_, " is expected next"));
  }
  if (indices.size() > batch_size_ - open_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", open_.size() + indices.size(),
                                                   " indices are more than batch_size ",
                                                   batch_size_));
  }
  if (indices.size() > kMaxAhead - ahead_) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": more than ", kMaxAhead,
                     " indices are ahead of delivery; send the rest as batches arrive"));
  }
  if (last && !end && open_.empty() && indices.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": a batch needs one index at least"));
  }
  for (const int64_t index : indices) {
    if (index < 0 || static_cast<uint64_t>(index) >= num_samples_) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": index ", index, " is not in the dataset's 0 to ", num_samples_, " - 1"));
    }
  }
  return absl::OkStatus();
}

Status IndexFeed::Add(uint64_t start, uint64_t batch, std::span<const int64_t> indices, bool last,
                      bool end) {
  if (!started_ || start > start_) {
    return absl::InvalidArgumentError(
        absl::StrCat("indices of start ", start, ": it has not been started"));
  }
  if (start < start_) return absl::OkStatus();  // was on its way when the client started anew
  RETURN_IF_ERROR(Check(batch, indices, last, end));
  open_.insert(open_.end(), indices.begin(), indices.end());
  ahead_ += indices.size();
  if ((last || end) && !open_.empty()) {
    whole_.push_back(std::exchange(open_, {}));
    ++open_batch_;
  }
  if (end) end_ = open_batch_;
  return absl::OkStatus();
}

bool IndexFeed::TakeBatch(std::vector<plan::PlannedSample>& out) {
  if (whole_.empty()) return false;
  out.clear();
  for (const uint64_t index : whole_.front()) out.push_back({.index = index});
  ahead_ -= whole_.front().size();
  whole_.pop_front();
  return true;
}

}  // namespace loaderd::engine
