// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "grpcpp/support/server_callback.h"

namespace loaderd::rpc {

// Writes ready messages one after the other, then the status. Deletes itself.
template <typename Response>
class ListReactor final : public grpc::ServerWriteReactor<Response> {
 public:
  ListReactor(std::vector<Response> responses, grpc::Status status)
      : responses_(std::move(responses)), status_(std::move(status)) {
    Next();
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      Next();
    } else {
      this->Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (next_ < responses_.size()) {
      this->StartWrite(&responses_[next_++]);
    } else {
      this->Finish(status_);
    }
  }
  const std::vector<Response> responses_;
  const grpc::Status status_;
  size_t next_ = 0;
};

}  // namespace loaderd::rpc
