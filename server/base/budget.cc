// SPDX-License-Identifier: Apache-2.0
#include "server/base/budget.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"

namespace loaderd {

Grant::Grant(Grant&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      uid_(other.uid_),
      amount_(std::exchange(other.amount_, 0)) {}

Grant& Grant::operator=(Grant&& other) noexcept {
  if (this != &other) {
    Reset();
    budget_ = std::exchange(other.budget_, nullptr);
    uid_ = other.uid_;
    amount_ = std::exchange(other.amount_, 0);
  }
  return *this;
}

void Grant::Reset() {
  if (budget_ == nullptr) return;
  std::exchange(budget_, nullptr)->GiveBack(uid_, std::exchange(amount_, 0));
}

Budget::Budget(Options options) : options_(std::move(options)) {}

Budget::~Budget() { assert(used() == 0); }

uint64_t Budget::used() const {
  MutexLock lock(mutex_);
  return used_;
}

uint64_t Budget::used_by(uint32_t uid) const {
  MutexLock lock(mutex_);
  const auto it = by_uid_.find(uid);
  return it == by_uid_.end() ? 0 : it->second;
}

uint64_t Budget::Left(uint32_t uid) const {
  const uint64_t all = options_.total - std::min(used_, options_.total);
  if (options_.per_uid == 0) return all;
  const auto it = by_uid_.find(uid);
  const uint64_t own = it == by_uid_.end() ? 0 : it->second;
  return std::min(all, options_.per_uid - std::min(own, options_.per_uid));
}

Status Budget::Refusal(uint32_t uid, uint64_t amount) const {
  const std::string unit = options_.unit.empty() ? "" : absl::StrCat(" ", options_.unit);
  return absl::ResourceExhaustedError(
      absl::StrCat(options_.name, ": asked for ", amount, unit, ", ", Left(uid), unit, " left of ",
                   options_.total, unit,
                   options_.per_uid == 0 ? "" : absl::StrCat(" (", options_.per_uid, " a user)"),
                   "; the daemon's setting ", options_.config_field, " raises it"));
}

Grant Budget::Hold(uint32_t uid, uint64_t amount) {
  used_ += amount;
  by_uid_[uid] += amount;
  return Grant(this, uid, amount);
}

StatusOr<Grant> Budget::Take(uint32_t uid, uint64_t amount) {
  MutexLock lock(mutex_);
  if (amount > Left(uid)) return Refusal(uid, amount);
  return Hold(uid, amount);
}

StatusOr<Grant> Budget::TakeUpTo(uint32_t uid, uint64_t wanted, uint64_t least, uint64_t step) {
  assert(step > 0 && wanted >= least);
  MutexLock lock(mutex_);
  const uint64_t left = Left(uid);
  if (least > left) return Refusal(uid, least);
  const uint64_t amount = std::min(wanted, left);
  return Hold(uid, std::max(least, amount - amount % step));
}

void Budget::GiveBack(uint32_t uid, uint64_t amount) {
  MutexLock lock(mutex_);
  assert(amount <= used_);
  used_ -= amount;
  const auto it = by_uid_.find(uid);
  it->second -= amount;
  if (it->second == 0) by_uid_.erase(it);
}

}  // namespace loaderd
