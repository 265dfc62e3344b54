// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/dataset/image_folder.h"
#include "server/dataset/roots.h"
#include "server/dataset/snapshot_store.h"

namespace loaderd::dataset {

// How one index is to be had: by another look at the one that is there, from a snapshot, or by
// indexing the folder. All but `found` and `stop` stay as they are while it runs.
struct IndexWork {
  std::string path;
  HiddenRule hidden = HiddenRule::kTorchvision;
  std::string order;                   // of the snapshot that is wanted; empty: the folder as it is
  std::shared_ptr<const Roots> roots;  // shared_ptr: as ImageFolder::Options says
  std::shared_ptr<const ImageFolder>
      known;  // may be null; shared_ptr: the catalog's own, or users'
  ImageFolder::State known_state;
  std::atomic<uint64_t> found = 0;
  std::stop_source stop;
};

struct IndexLimits {
  uint64_t max_sample_bytes = 256ull << 20;
  int index_threads = 1;
};

// Blocks on storage. Without a folder: `known` still holds or, where an order is wanted, there is
// no such snapshot, which has been logged. `store` may be null.
StatusOr<ImageFolder::Indexed> MakeIndex(IndexWork& work, const IndexLimits& limits,
                                         SnapshotStore* store);

}  // namespace loaderd::dataset
