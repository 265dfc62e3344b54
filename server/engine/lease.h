// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "server/engine/session_core.h"

namespace loaderd::engine {

class CoreLease : public SegmentLease {
 public:
  // Shares the core with pieces in flight and the session's handle.
  explicit CoreLease(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}
  ~CoreLease() override { core_->EndLease(); }

 private:
  const std::shared_ptr<SessionCore> core_;
};

}  // namespace loaderd::engine
