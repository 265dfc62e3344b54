// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "server/base/mutex.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/dataset/dataset.h"

namespace loaderd::dataset {

// Opens datasets, each once for all who ask for it at the same time or while it is in use, and
// keeps a few idle ones whose folders have not changed. Thread-safe. The only way into this module.
class Catalog {
 public:
  struct Options {
    bool restrict_to_roots = false;  // the system daemon: only paths under `roots`, links resolved
    std::vector<std::string> roots = {};                          // absolute
    std::string roots_field = "dataset_root";                     // named in the refusal
    std::vector<std::pair<std::string, std::string>> named = {};  // name -> image folder
    uint64_t max_sample_bytes = 256ull << 20;
    int index_threads = 2;
    int idle_kept = 8;
    std::string state_dir = {};  // absolute: keeps index snapshots there; empty: keeps none
    uint64_t snapshot_bytes = 4ull << 30;
  };
  explicit Catalog(Options options);
  ~Catalog();  // no Open may be under way

  // Called now and then while indexing, from any thread, with the number of samples found so far.
  using Progress = std::function<void(uint64_t samples)>;

  // Blocks while the dataset is indexed; callers that ask for one that is being indexed wait for
  // the same index. `stop` ends the wait (kCancelled), and the indexing when nobody waits for it
  // any more. kNotFound, kPermissionDenied (naming roots_field) or kInvalidArgument (a file, an
  // empty class, no class: with torchvision's wording of what was found) name the path. shared_ptr:
  // sessions share a dataset, and the last one, in any order, lets it go.
  //
  // `expected_order`: the order fingerprint that a job began with. Its dataset is opened as it was
  // then, whatever its folder holds now, where a snapshot of it is in memory or on the disk; else
  // the folder must still have that order, or it is kFailedPrecondition. Empty: as it is now.
  StatusOr<std::shared_ptr<const Dataset>> Open(const DatasetSpec& spec, std::stop_token stop,
                                                const Progress& progress,
                                                const std::string& expected_order = "");

  struct Entry {
    std::shared_ptr<const Dataset> dataset;
    uint32_t users = 0;
    std::string name;  // as the configuration defines it, else empty
  };
  std::vector<Entry> List() const;

  void Flush();  // waits until the snapshots of what has been opened are written, or cannot be

  // SIGHUP: new names hold for the next Open; open datasets stay.
  void SetNamed(std::vector<std::pair<std::string, std::string>> named);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loaderd::dataset
