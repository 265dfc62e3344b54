// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "server/engine/engine.h"
#include "server/engine/session_core.h"

namespace loaderd::engine {

// The handle: each call holds the core, because an event within the call may destroy the handle.
class SessionHandle : public Session {
 public:
  // Shares the core with pieces in flight and the lease.
  explicit SessionHandle(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}
  ~SessionHandle() override {
    core_->Close();  // the lease, if it is still here, goes at once
    core_->EndHandle();
  }

  const std::string& name() const override { return core_->constant().name; }
  const BatchLayout& layout() const override { return core_->constant().layout; }
  uint32_t slot_count() const override { return core_->constant().slots; }
  int segment_fd() const override { return core_->segment_fd(); }
  uint64_t num_samples() const override { return core_->constant().dataset->size(); }
  uint64_t num_batches() const override { return core_->constant().num_batches; }
  uint64_t epoch_samples() const override { return core_->constant().epoch_samples; }
  const std::string& job_fingerprint() const override { return core_->constant().fingerprint; }

  Status Start(uint64_t epoch, uint64_t first_batch, uint64_t start, bool goes_on) override {
    const std::shared_ptr<SessionCore> core = core_;
    return core->Start(epoch, first_batch, start, goes_on);
  }
  Status Want(uint32_t count) override {
    const std::shared_ptr<SessionCore> core = core_;
    return core->Want(count);
  }
  Status Release(std::span<const uint32_t> slots) override {
    const std::shared_ptr<SessionCore> core = core_;
    return core->Release(slots);
  }
  Status AddIndices(uint64_t start, uint64_t batch, std::span<const int64_t> indices, bool last,
                    bool end) override {
    const std::shared_ptr<SessionCore> core = core_;
    return core->AddIndices(start, batch, indices, last, end);
  }
  std::span<const uint8_t> SlotBytes(uint32_t slot) const override {
    return core_->SlotBytes(slot);
  }
  SessionFacts facts() const override { return core_->Tell(); }
  std::unique_ptr<SegmentLease> Close() override { return core_->Close(); }

 private:
  const std::shared_ptr<SessionCore> core_;
};

}  // namespace loaderd::engine
