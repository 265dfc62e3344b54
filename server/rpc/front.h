// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "server/base/mutex.h"
#include "server/dataset/catalog.h"
#include "server/engine/engine.h"
#include "server/rpc/connections.h"
#include "server/rpc/opener.h"
#include "server/rpc/segment_door.h"

namespace loaderd::rpc {

class SessionCall;

// The live session calls, so that a stop can end them. Thread-safe.
class Calls {
 public:
  void Add(SessionCall* call);
  void Remove(SessionCall* call);
  size_t size() const;
  // Finishes each with kUnavailable "daemon is stopping".
  void FinishAll();

 private:
  mutable Mutex mutex_;
  std::vector<SessionCall*> calls_ ABSL_GUARDED_BY(mutex_);
};

// What a call needs of its server; everything in it outlives every call.
struct Front {
  engine::Engine& engine;
  dataset::Catalog& catalog;
  Connections& connections;
  SegmentDoor& door;
  Opener& opener;
  Calls& calls;
  const bool user_mode;
  const uint32_t own_uid;
  std::atomic<bool> draining = false;

  // OK, or why this uid gets no service at all.
  Status Admit(uint32_t uid) const;
};

}  // namespace loaderd::rpc
