// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/session_call.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "loaderd/version.h"
#include "server/base/log.h"
#include "server/rpc/wire.h"

namespace loaderd::rpc {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr size_t kMaxClientBytes = 128;
constexpr std::chrono::seconds kProgressEvery(1);

Status CheckFeatures(const v1::Open& open) {
  const std::vector<std::string>& have = Features();
  for (const std::string& feature : open.features()) {
    if (std::find(have.begin(), have.end(), feature) == have.end()) {
      return absl::UnimplementedError(absl::StrCat("features: this daemon (", LOADERD_VERSION,
                                                   ") does not have \"", Printable(feature), "\""));
    }
  }
  return absl::OkStatus();
}

StatusOr<plan::Job> JobOf(const v1::Open& open) {
  switch (open.job_case()) {
    case v1::Open::kSpec: return plan::ParseJob(open.spec());
    case v1::Open::kJson: return plan::ParseJobJson(open.json());
    case v1::Open::JOB_NOT_SET: break;
  }
  return absl::InvalidArgumentError("open: neither spec nor json is set");
}

}  // namespace

SessionCall::SessionCall(Front& front, std::optional<Peer> peer) : front_(front) {
  front_.calls.Add(this);
  Status admitted = absl::UnauthenticatedError("the peer hung up before its call began");
  if (peer.has_value()) {
    peer_ = *peer;
    admitted = front_.Admit(peer_.uid);
    if (!admitted.ok()) front_.connections.Refused(peer_.connection);
  }
  MutexLock lock(mutex_);
  if (admitted.ok()) {
    StartRead(&request_);
  } else {
    FinishLocked(admitted);
  }
}

SessionCall::~SessionCall() = default;

void SessionCall::FinishLocked(const Status& status) {
  if (finished_) return;
  finished_ = true;
  outbox_.clear();
  Finish(ToGrpc(status));
}

void SessionCall::FinishWith(const Status& status) {
  {
    MutexLock lock(mutex_);
    if (opening_now_) {
      stop_status_ = status;
      opening_.request_stop();
      return;
    }
  }
  EndSession();
  MutexLock lock(mutex_);
  FinishLocked(status);
}

void SessionCall::OnCancel() { opening_.request_stop(); }

void SessionCall::OnDone() {
  EndSession();
  front_.calls.Remove(this);
  delete this;
}

void SessionCall::EndSession() {
  {
    MutexLock lock(mutex_);
    const bool was_open = opened_ && !ended_;
    ended_ = true;
    if (!was_open) return;
  }
  if (!token_.empty()) front_.door.Revoke(token_);
  std::unique_ptr<engine::SegmentLease> lease = session_->Close();
  const engine::SessionFacts facts = session_->facts();
  if (lease != nullptr) front_.connections.Keep(peer_.connection, std::move(lease));
  LogInfo(absl::StrCat("session ", facts.name, " closed uid=", peer_.uid, " pid=", peer_.pid,
                       " batches=", facts.batches_delivered, " copied=", facts.batches_copied,
                       " samples=", facts.samples_delivered, " bad=", facts.bad_samples));
}

void SessionCall::OnReadDone(bool ok) {
  if (!ok) {  // the client ended its side, died, or the call was finished
    EndSession();
    MutexLock lock(mutex_);
    FinishLocked(absl::OkStatus());
    return;
  }
  bool opened;
  {
    MutexLock lock(mutex_);
    opened = opened_;
    if (finished_) return;
    if (!opened && request_.has_open()) opening_now_ = true;
  }
  Status status = absl::OkStatus();
  if (opened) {
    status = Forward(request_);
  } else if (request_.has_open()) {
    // The next read begins when the session is open.
    front_.opener.Post([this, open = std::move(*request_.mutable_open())] { OpenSession(open); });
    return;
  } else {
    status = absl::InvalidArgumentError("the first request of a session must be open");
  }
  if (!status.ok()) EndSession();
  MutexLock lock(mutex_);
  if (finished_) return;
  if (status.ok()) {
    StartRead(&request_);
  } else {
    FinishLocked(status);
  }
}

Status SessionCall::Forward(const v1::SessionRequest& request) {
  switch (request.request_case()) {
    case v1::SessionRequest::kStartEpoch:
      return session_->Start(request.start_epoch().epoch(), request.start_epoch().first_batch(),
                             request.start_epoch().start(), request.start_epoch().goes_on());
    case v1::SessionRequest::kWant: return session_->Want(request.want().count());
    case v1::SessionRequest::kRelease:
      return session_->Release(
          {request.release().slot().data(), static_cast<size_t>(request.release().slot_size())});
    case v1::SessionRequest::kIndices: {
      const v1::Indices& indices = request.indices();
      return session_->AddIndices(
          indices.start(), indices.batch(),
          {indices.index().data(), static_cast<size_t>(indices.index_size())}, indices.last(),
          indices.end());
    }
    case v1::SessionRequest::kOpen:
      return absl::InvalidArgumentError("open: the session is open already");
    case v1::SessionRequest::REQUEST_NOT_SET: break;
  }
  return absl::InvalidArgumentError("a request without content, or of a newer protocol");
}

StatusOr<v1::Opened> SessionCall::TryOpen(const v1::Open& open) {
  if (front_.draining) return absl::UnavailableError("daemon is stopping: no new sessions");
  RETURN_IF_ERROR(CheckFeatures(open));
  ASSIGN_OR_RETURN(const plan::Job job, JobOf(open));
  inline_ = open.delivery() == v1::DELIVERY_WAY_INLINE;

  // Only this thread writes before the session is open, so progress needs no more care than any
  // message.
  auto told = std::chrono::steady_clock::now();
  const auto progress = [this, told, &guard = mutex_](uint64_t samples) mutable {
    const auto now = std::chrono::steady_clock::now();
    {
      MutexLock lock(guard);
      if (now - told < kProgressEvery) return;
      told = now;
    }
    Outgoing indexing;
    indexing.message.mutable_indexing()->set_files(samples);
    std::vector<Outgoing> outgoing;
    outgoing.push_back(std::move(indexing));
    Enqueue(std::move(outgoing));
  };
  ASSIGN_OR_RETURN(std::shared_ptr<const dataset::Dataset> dataset,
                   front_.catalog.Open(job.dataset, opening_.get_token(), progress,
                                       open.expected_order_fingerprint()));
  const std::string order_fingerprint = dataset->order_fingerprint();
  const engine::Owner owner = {.uid = peer_.uid,
                               .pid = peer_.pid,
                               .client = Printable(open.client().substr(0, kMaxClientBytes))};
  ASSIGN_OR_RETURN(session_, front_.engine.Open(job, std::move(dataset), owner, inline_, this));
  v1::Opened opened = ToOpened(*session_, inline_);
  opened.set_order_fingerprint(order_fingerprint);
  if (!inline_) {
    ASSIGN_OR_RETURN(token_, front_.door.Issue(peer_, session_->segment_fd()));
    opened.set_segment_token(token_);
  }
  return opened;
}

void SessionCall::OpenSession(const v1::Open& open) {
  StatusOr<v1::Opened> opened = TryOpen(open);
  if (opened.ok()) {
    const engine::SessionFacts facts = session_->facts();
    LogInfo(absl::StrCat("session ", facts.name, " opened uid=", peer_.uid, " pid=", peer_.pid,
                         " dataset=", facts.dataset, " batch=", facts.batch_size,
                         " slots=", facts.slots, " slot_bytes=", facts.slot_bytes,
                         " delivery=", facts.delivery));
    MutexLock lock(mutex_);
    opened_ = true;
    if (stop_status_.ok()) {
      opening_now_ = false;
      Outgoing reply;
      *reply.message.mutable_opened() = *std::move(opened);
      outbox_.push_back(std::move(reply));
      if (!writing_) WriteNext();
      StartRead(&request_);
      return;
    }
  } else if (opened.status().code() != absl::StatusCode::kCancelled) {
    LogInfo(absl::StrCat("session refused uid=", peer_.uid, " pid=", peer_.pid,
                         " reason=", Printable(MessageOf(opened.status()))));
  }
  EndSession();  // a stop came while it opened, or it could not be opened
  MutexLock lock(mutex_);
  opening_now_ = false;
  FinishLocked(stop_status_.ok() ? opened.status() : stop_status_);
}

void SessionCall::OnDelivery(engine::Delivery delivery) {
  std::vector<Outgoing> outgoing;
  const uint64_t inline_bytes = inline_ ? session_->layout().slot_bytes : 0;
  for (v1::SessionResponse& message : ToResponses(delivery, inline_bytes)) {
    outgoing.emplace_back().message = std::move(message);
  }
  if (delivery.handling == engine::Handling::kInline && !delivery.epoch_end) {
    outgoing.emplace_back().inline_slot = delivery.slot;
  }
  Enqueue(std::move(outgoing));
}

void SessionCall::Enqueue(std::vector<Outgoing> outgoing) {
  MutexLock lock(mutex_);
  if (finished_) return;
  for (Outgoing& each : outgoing) outbox_.push_back(std::move(each));
  if (!writing_) WriteNext();
}

// gRPC's Start calls and Finish do not block and run no reaction within themselves; they are made
// under the lock so that none follows Finish.
void SessionCall::WriteNext() {
  if (finished_ || outbox_.empty()) return;
  Outgoing& front = outbox_.front();
  if (front.inline_slot.has_value()) {
    const std::span<const uint8_t> rest =
        session_->SlotBytes(*front.inline_slot).subspan(front.inline_offset);
    const size_t bytes = std::min(rest.size(), kChunkBytes);
    chunk_.mutable_chunk()->set_data(rest.data(), bytes);
    front.inline_offset += bytes;
  } else {
    chunk_ = std::move(front.message);
  }
  writing_ = true;
  StartWrite(&chunk_);
}

void SessionCall::OnWriteDone(bool ok) {
  std::optional<uint32_t> sent_slot;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok || finished_ || outbox_.empty()) return;  // the read under way ends the call
    const Outgoing& front = outbox_.front();
    const bool whole =
        !front.inline_slot.has_value() || front.inline_offset >= session_->layout().slot_bytes;
    if (whole) {
      sent_slot = front.inline_slot;
      outbox_.pop_front();
    }
    WriteNext();
  }
  if (sent_slot.has_value()) {
    // Of a session that has been closed meanwhile, a release means nothing.
    const Status released = session_->Release({&*sent_slot, 1});
    if (!released.ok()) LogDebug(absl::StrCat("inline release: ", released.message()));
  }
}

}  // namespace loaderd::rpc
