// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "server/base/mutex.h"
#include "server/base/status.h"

namespace loaderd {

class Budget;

// A held share of a Budget; goes back when destroyed. Must not outlive its Budget.
class Grant {
 public:
  Grant() = default;
  Grant(Grant&& other) noexcept;
  Grant& operator=(Grant&& other) noexcept;
  Grant(const Grant&) = delete;
  Grant& operator=(const Grant&) = delete;
  ~Grant() { Reset(); }

  uint64_t amount() const { return amount_; }
  explicit operator bool() const { return budget_ != nullptr; }
  void Reset();

 private:
  friend class Budget;
  Grant(Budget* budget, uint32_t uid, uint64_t amount)
      : budget_(budget), uid_(uid), amount_(amount) {}
  Budget* budget_ = nullptr;
  uint32_t uid_ = 0;
  uint64_t amount_ = 0;
};

// A limited resource that callers can ask for: descriptors, slot bytes, sessions, reads in flight.
// Thread-safe.
class Budget {
 public:
  struct Options {
    std::string name;  // as messages and `loaderctl status` say it, e.g. "descriptors"
    uint64_t total = 0;
    uint64_t per_uid = 0;      // a uid's share of it; 0: all of it
    std::string unit;          // e.g. "bytes"; may be empty
    std::string config_field;  // what raises it, e.g. "limits.slot_bytes"
  };
  explicit Budget(Options options);
  ~Budget();  // nothing may be held any more

  // kResourceExhausted, with limit, asked, left and the field that raises it, when `amount` is not
  // to be had.
  StatusOr<Grant> Take(uint32_t uid, uint64_t amount);
  // The most of `wanted`, at least `least`, that is a multiple of `step`: how a caller degrades
  // before it is refused.
  StatusOr<Grant> TakeUpTo(uint32_t uid, uint64_t wanted, uint64_t least, uint64_t step);

  const Options& options() const { return options_; }
  uint64_t used() const;
  uint64_t used_by(uint32_t uid) const;

 private:
  friend class Grant;
  uint64_t Left(uint32_t uid) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status Refusal(uint32_t uid, uint64_t amount) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Grant Hold(uint32_t uid, uint64_t amount) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(uint32_t uid, uint64_t amount);

  const Options options_;
  mutable Mutex mutex_;
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint32_t, uint64_t> by_uid_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace loaderd
