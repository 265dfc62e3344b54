// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/dataset/dataset.h"
#include "server/dataset/roots.h"

namespace loaderd::dataset {

// Which directory it was, and its state when it was read.
struct DirStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;  // nobody can set it back, as tar and rsync do with the other
  friend bool operator==(const DirStamp&, const DirStamp&) = default;
};
DirStamp StampOf(const struct stat& status);

struct ScannedDir {
  std::string path;      // relative to the root; the root's is empty
  int class_index = -1;  // -1: the root
  DirStamp stamp;
  std::string names;  // the wanted files' names in byte order, each with a NUL behind it
  uint64_t count = 0;
};

struct ScannedFolder {
  std::vector<std::string> class_names;  // in byte order
  std::vector<ScannedDir> dirs;          // the root, then by class and path in byte order
  std::vector<EntryNote> notes;
};

struct ScanOptions {
  const Roots* roots = nullptr;
  int threads = 1;
  bool (*wanted)(std::string_view name) = nullptr;
  HiddenRule hidden = HiddenRule::kTorchvision;
  std::atomic<uint64_t>* found = nullptr;  // wanted files so far
  std::stop_token stop;
};

// Walks root/CLASS/**, links followed, in `threads` threads, as Python's os.scandir for the classes
// and os.walk(followlinks=True) below them do, but for this: a directory that cannot be read is an
// error, not silence, and a link that leads back to a directory above it is noted and not entered.
// kCancelled on stop. A class directory may have no wanted file.
StatusOr<ScannedFolder> ScanFolder(const std::string& root, const ScanOptions& options);

}  // namespace loaderd::dataset
