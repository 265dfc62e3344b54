// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/base/thread_annotations.h"
#include "grpcpp/support/server_callback.h"
#include "loaderd/v1/loader.pb.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/engine/engine.h"
#include "server/plan/job.h"
#include "server/rpc/front.h"
#include "server/rpc/peer.h"

namespace loaderd::rpc {

// One Session call: a session's whole life. End of stream, death of the client and a stop are one
// path: EndSession, then Finish. gRPC's threads call the On... functions (reads one after the
// other), the engine's threads OnDelivery; deletes itself in OnDone.
class SessionCall final : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>,
                          public engine::SessionEvents {
 public:
  SessionCall(Front& front, std::optional<Peer> peer);

  // Any thread: no more is delivered; the client gets `status`.
  void FinishWith(const Status& status);

 private:
  ~SessionCall() override;

  // What is to be written: a message, or the rest of an inline batch.
  struct Outgoing {
    v1::SessionResponse message;
    std::optional<uint32_t> inline_slot;
    uint64_t inline_offset = 0;
  };

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void OnDelivery(engine::Delivery delivery) override;

  void OpenSession(const v1::Open& open);  // on an opener thread
  StatusOr<v1::Opened> TryOpen(const v1::Open& open);
  Status Forward(const v1::SessionRequest& request);
  void EndSession();
  void Enqueue(std::vector<Outgoing> outgoing);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishLocked(const Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Front& front_;
  Peer peer_;
  v1::SessionRequest request_;  // of the read under way
  std::stop_source opening_;

  // Set before the first read after Open and reset with the call; its own calls are never made
  // under mutex_.
  std::unique_ptr<engine::Session> session_;
  std::string token_;
  bool inline_ = false;

  Mutex mutex_;
  std::deque<Outgoing> outbox_ ABSL_GUARDED_BY(mutex_);
  v1::SessionResponse chunk_ ABSL_GUARDED_BY(mutex_);  // the one being written
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;  // session_ may be used
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // session_ has been closed, or never will be opened
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;     // Finish has been called
  bool opening_now_ ABSL_GUARDED_BY(mutex_) = false;  // an opener thread uses this, and will Finish
  Status stop_status_ ABSL_GUARDED_BY(mutex_);        // what FinishWith asked for meanwhile
};

}  // namespace loaderd::rpc
