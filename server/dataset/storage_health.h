// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/dataset/dataset.h"

namespace loaderd::dataset {

// As ErrnoStatus. Errors that are the storage's or the network's rather than the file's, and may
// pass (EIO, ESTALE, EAGAIN, ETIMEDOUT, ...), are marked and told with their name.
Status FileStatus(int error, std::string_view operand);
// True for a status that FileStatus marked.
bool IsStorageFault(const Status& status);

// Tries reads again that fail by the storage: a few times, with growing pauses. A sample that
// failed for good is tried once only until it can be read again, and so are all while the storage
// seems to be gone, so that neither costs the pauses in every epoch. Thread-safe; takes no lock
// while all is well.
class StorageHealth {
 public:
  struct Options {
    std::vector<std::chrono::milliseconds> pauses = {std::chrono::milliseconds(50),
                                                     std::chrono::milliseconds(250),
                                                     std::chrono::milliseconds(1000)};
    uint32_t gone_after = 8;      // samples in a row that failed for good
    size_t remembered = 1 << 16;  // failed samples that are kept in mind
  };
  explicit StorageHealth(Options options) : options_(std::move(options)) {}

  // `once` reads from the start, the path included: a stale handle is of no use. What is no storage
  // fault is returned as it is, without another try.
  Status Read(uint64_t sample, absl::FunctionRef<Status()> once);
  StorageCounts counts() const;

 private:
  size_t TriesAfterTheFirst(uint64_t sample) const;
  void Note(uint64_t sample, bool failed);

  const Options options_;
  std::atomic<uint64_t> retries_ = 0, failures_ = 0;
  std::atomic<uint32_t> failed_in_a_row_ = 0;
  std::atomic<size_t> remembered_ = 0;
  mutable Mutex mutex_;
  absl::flat_hash_set<uint64_t> failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace loaderd::dataset
