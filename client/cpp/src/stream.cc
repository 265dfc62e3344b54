// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/stream.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "client/cpp/src/text.h"

namespace loaderd::client {
namespace {

using std::chrono::milliseconds;

// Between two looks at whether the stream was closed, or the daemon fell silent.
constexpr milliseconds kSlice(200);

milliseconds Left(std::chrono::steady_clock::time_point until) {
  return std::max(milliseconds(0),
                  std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now()));
}

std::string Seconds(milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(time.count()) / 1000);
  return text;
}

}  // namespace

Stream::Stream(Job job, Session* session)
    : inline_(session->inline_delivery()),
      job_(std::move(job)),
      layout_(session->opened(), inline_, session->socket()),
      session_(session) {
  job_.options.waiting = nullptr;
}

Stream::~Stream() = default;

void Stream::Unref() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

// Of none while the daemon is gone, and after Close.
Session::Use Stream::Current() {
  const std::lock_guard lock(session_mutex_);
  return Session::Use(session_);
}

Status Stream::Usable() const {
  if (closed_) return Error(LOADERD_CANCELLED, "the session is closed");
  return failed_;
}

Status Stream::StartEpoch(uint64_t epoch, uint64_t first_batch, bool goes_on) {
  const std::lock_guard call(call_mutex_);
  Status status = Usable();
  if (!status.ok()) return status;
  if (const Session::Use session = Current()) {
    status = session->StartEpoch(epoch, first_batch, goes_on);
    if (!status.ok() && !Lose(status)) return status;
  }
  started_ = true;
  ended_ = false;
  goes_on_ = goes_on;
  epoch_ = epoch;
  batch_ = next_indices_ = first_batch;
  ForgetIndices();
  return Ok();
}

Status Stream::SendIndices(uint64_t batch, std::span<const int64_t> indices) {
  const std::lock_guard call(call_mutex_);
  return TakeIndices(batch, indices, indices.empty());
}

Status Stream::EndIndices() {
  const std::lock_guard call(call_mutex_);
  return TakeIndices(next_indices_, {}, true);
}

// Kept until their batch is handed out, and sent when there is a session.
Status Stream::TakeIndices(uint64_t batch, std::span<const int64_t> indices, bool end) {
  Status status = Usable();
  if (!status.ok()) return status;
  if (!started_) {
    return Error(LOADERD_FAILED_PRECONDITION, "start an epoch before sending its indices");
  }
  if (const Session::Use session = Current()) {
    status = end ? session->EndIndices() : session->SendIndices(batch, indices);
    if (!status.ok() && !Lose(status)) return status;
  }
  if (end) {
    indices_ended_ = true;
  } else {
    sent_.push_back({batch, {indices.begin(), indices.end()}});
    next_indices_ = batch + 1;
  }
  return Ok();
}

void Stream::ForgetIndices() {
  sent_.clear();
  indices_ended_ = false;
}

void Stream::MoveTo(uint64_t batch) {
  batch_ = batch;
  while (!sent_.empty() && sent_.front().batch < batch) sent_.pop_front();
}

Status Stream::Next(int64_t timeout_ms, const loaderd_batch** batch) {
  const std::lock_guard call(call_mutex_);
  const milliseconds timeout(std::min<int64_t>(timeout_ms, 7 * 24 * 3'600'000LL));
  const auto until = timeout_ms < 0 ? Clock::time_point::max() : Clock::now() + timeout;
  for (bool looked = false;; looked = true) {
    Status status = Usable();
    if (!status.ok()) return status;
    if (!started_) {
      return Error(LOADERD_FAILED_PRECONDITION, "start an epoch before asking for its batches");
    }
    if (ended_) return Error(LOADERD_END_OF_EPOCH, "the epoch has ended");
    if (looked && Clock::now() >= until) {
      return Error(LOADERD_DEADLINE_EXCEEDED,
                   "no batch came within " + std::to_string(timeout_ms) + " ms");
    }
    const auto slice = std::min(until, Clock::now() + kSlice);
    std::optional<Status> done = reopening_ != nullptr ? Reopen(slice) : Receive(slice, batch);
    if (done.has_value()) return *done;
  }
}

std::optional<Status> Stream::Receive(Clock::time_point until, const loaderd_batch** batch) {
  const Session::Use session = Current();
  if (!session) return std::nullopt;  // closed meanwhile
  Status status = session->Next(Left(until).count(), batch);
  const bool answered = status.ok() || status.code == LOADERD_DATA_LOSS ||
                        status.code == LOADERD_STORAGE_GONE || status.code == LOADERD_END_OF_EPOCH;
  if (answered) lost_.reset();
  switch (status.code) {
    case LOADERD_OK: MoveTo((*batch)->step + 1); return status;
    case LOADERD_DATA_LOSS:
    case LOADERD_STORAGE_GONE: MoveTo(batch_ + 1); return status;
    case LOADERD_END_OF_EPOCH:
      ended_ = true;
      ForgetIndices();
      return status;
    case LOADERD_DEADLINE_EXCEEDED: {
      const milliseconds limit = Reopening::Limit(job_.options.reconnect_ms);
      if (limit == milliseconds(0) || session->Unanswered() < limit) return std::nullopt;
      return failed_ = Error(LOADERD_UNAVAILABLE,
                             "the daemon at " + Printable(session->socket()) +
                                 " has not answered for " + Seconds(session->Unanswered()) +
                                 ": it is stopped (SIGSTOP, a debugger) or hangs; see its state by "
                                 "ps, restart it and open again");
    }
    default: break;
  }
  if (Lose(status)) return std::nullopt;
  return status;
}

// Whether the session is given up for another.
bool Stream::Lose(const Status& why) {
  if (why.code != LOADERD_UNAVAILABLE || job_.options.reconnect_ms == 0) return false;
  Session* lost = nullptr;
  {
    const std::lock_guard lock(session_mutex_);
    std::swap(lost, session_);
  }
  if (lost == nullptr) return true;  // closed meanwhile
  const bool again = lost_.has_value();
  if (!again) lost_ = Clock::now();
  reopening_ = std::make_unique<Reopening>(&job_, layout_.opened(), inline_, why, *lost_);
  lost->Abandon();
  if (again) return true;
  job_.options.Log(why.text + " -- waiting up to " +
                   Seconds(Reopening::Limit(job_.options.reconnect_ms)) +
                   " for a daemon that goes on");
  return true;
}

std::optional<Status> Stream::Reopen(Clock::time_point until) {
  Session* session = nullptr;
  Status status = reopening_->Go(until, &session);
  if (status.ok()) {
    status = Resume(session);
    if (status.ok()) return std::nullopt;
    return status;
  }
  if (status.code == LOADERD_DEADLINE_EXCEEDED) return std::nullopt;
  if (status.code == LOADERD_INTERRUPTED) return status;
  return failed_ = std::move(status);
}

Status Stream::Resume(Session* session) {
  const milliseconds waited = reopening_->waited();
  {
    const std::lock_guard lock(session_mutex_);
    if (!closed_) session_ = std::exchange(session, nullptr);
  }
  if (session != nullptr) {
    session->Close();
    return Usable();
  }
  reopening_.reset();
  const Session::Use use = Current();
  if (!use) return Usable();
  Status status = use->StartEpoch(epoch_, batch_, goes_on_);
  for (const Sent& sent : sent_) {
    if (status.ok()) status = use->SendIndices(sent.batch, sent.indices);
  }
  if (status.ok() && indices_ended_) status = use->EndIndices();
  if (Lose(status)) return Ok();
  if (!status.ok()) return failed_ = std::move(status);
  job_.options.Log("the daemon at " + Printable(use->socket()) + " goes on after " +
                   Seconds(waited) + " with batch " + std::to_string(batch_) + " of epoch " +
                   std::to_string(epoch_));
  return Ok();
}

void Stream::Close() {
  if (!closed_.exchange(true)) {
    Session* session = nullptr;
    {
      const std::lock_guard lock(session_mutex_);
      std::swap(session, session_);
    }
    if (session != nullptr) session->Close();
  }
  Unref();
}

}  // namespace loaderd::client
