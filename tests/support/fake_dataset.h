// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/byte_buffer.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/dataset/dataset.h"

namespace loaderd {

// Samples made in memory that tell which they are: sample i is an 8 x 8 JPEG of the one grey level
// Grey(i) with label Label(i), so that any crop or resize of it is that level too. Reads can be
// counted, slowed, blocked and made to fail. Thread-safe.
class FakeDataset : public dataset::Dataset {
 public:
  explicit FakeDataset(uint64_t size, std::string path = "/fake");

  static uint8_t Grey(uint64_t index) { return static_cast<uint8_t>(1 + index % 251); }
  static int64_t Label(uint64_t index) { return static_cast<int64_t>(1000 + index * 7); }
  static std::vector<uint8_t> Jpeg(uint8_t grey);

  void FailRead(uint64_t index, std::string reason);  // the message is Name(index): reason
  void Corrupt(uint64_t index);                       // read well, cannot be decoded
  // Called by each read before anything else, on the reading thread.
  void OnRead(std::function<void(uint64_t index)> hook);
  void Slow(std::chrono::microseconds each);

  // Reads of `index`, or of all, hang until Unblock().
  void Block(uint64_t index);
  void BlockAll();
  void Unblock();
  // Waits until that many reads hang; false after ten seconds.
  bool WaitForBlocked(int reads) const;

  uint64_t reads() const;
  uint64_t reads(uint64_t index) const;
  int most_at_once() const;

  uint64_t size() const override { return size_; }
  int64_t label(uint64_t index) const override { return Label(index); }
  Status Read(uint64_t index, ByteBuffer& bytes) const override;
  std::string Name(uint64_t index) const override;
  const std::vector<std::string>& class_names() const override { return class_names_; }
  const std::string& order_fingerprint() const override { return fingerprint_; }
  const std::string& path() const override { return path_; }
  std::string_view kind() const override { return "fake"; }
  uint64_t index_bytes() const override { return 0; }
  double index_seconds() const override { return 0; }

 private:
  bool Hangs(uint64_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return all_blocked_ || blocked_.contains(index);
  }

  const uint64_t size_;
  const std::string path_;
  const std::string fingerprint_ = "fake";
  const std::vector<std::string> class_names_ = {"only"};
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::map<uint64_t, std::string> failing_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> corrupt_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> blocked_ ABSL_GUARDED_BY(mutex_);
  bool all_blocked_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(uint64_t)> hook_ ABSL_GUARDED_BY(mutex_);
  std::chrono::microseconds each_ ABSL_GUARDED_BY(mutex_){0};
  mutable std::map<uint64_t, uint64_t> reads_ ABSL_GUARDED_BY(mutex_);
  mutable uint64_t all_reads_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable int hanging_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable int at_once_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable int most_at_once_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace loaderd
