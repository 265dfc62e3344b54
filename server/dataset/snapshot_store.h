// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/base/unique_fd.h"
#include "server/dataset/index_snapshot.h"

namespace loaderd::dataset {

// Keeps index snapshots in files, one each, so that a later daemon can serve an order that its
// folder no longer has. A thread of its own writes and removes them: a fault there (no right, a
// full disk) is logged once until it works again, and costs nobody anything else. Those that have
// not been used for long, and the least recently used beyond a sum of bytes, are removed; never
// those that somebody holds. Several daemons may share a folder. Thread-safe.
class SnapshotStore {
 public:
  struct Options {
    std::string state_dir;  // absolute; made with mode 0700 where it is missing
    uint64_t max_bytes = 4ull << 30;
    std::chrono::seconds max_age = std::chrono::hours(30 * 24);
    std::chrono::seconds sweep_every = std::chrono::hours(1);
  };
  explicit SnapshotStore(Options options);
  ~SnapshotStore();  // writes what waits to be written first

  // Lets it be written where it is not yet, and spares it for as long as `index` has a holder.
  // Does not block. It is not written if all holders go before its turn.
  void Keep(const SnapshotOf& of, const std::shared_ptr<const FolderIndex>& index);

  // One read. kNotFound where there is none; what is damaged or cannot be read says which file and
  // why, and is as good as none: it is removed.
  StatusOr<FolderIndex> Load(const SnapshotOf& of, const std::string& order_fingerprint);

  void Flush();  // waits until all that was given to Keep is on the disk, or could not be

 private:
  struct Waiting {
    std::string name;
    SnapshotOf of;
    std::weak_ptr<const FolderIndex> index;
  };

  void Run();
  void Wrote(const Waiting& waiting, const Status& status);
  Status Write(const Waiting& waiting, const FolderIndex& index);
  Status WriteFile(int folder, const Waiting& waiting, const FolderIndex& index) const;
  // Removes what is too old, and of the rest as much as `more` bytes need. kResourceExhausted when
  // that is not enough.
  Status Sweep(int folder, uint64_t more);
  bool IsHeld(const std::string& name);
  StatusOr<UniqueFd> Folder(bool make) const;
  Status ReadAndDecode(int folder, const std::string& name, IndexSnapshot& snapshot) const;

  const Options options_;
  const std::string folder_;
  bool warned_ = false;  // the thread's own
  Mutex mutex_;
  CondVar changed_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // By file name.
  absl::flat_hash_map<std::string, std::weak_ptr<const FolderIndex>> held_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace loaderd::dataset
