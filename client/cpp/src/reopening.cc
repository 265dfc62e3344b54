// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/reopening.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "client/cpp/src/layout.h"
#include "client/cpp/src/opener.h"
#include "client/cpp/src/patience.h"
#include "client/cpp/src/segment_map.h"
#include "client/cpp/src/text.h"
#include "client/cpp/src/unix_socket.h"

namespace loaderd::client {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kDefaultLimitMs = 60'000;
constexpr int64_t kLongestLimitMs = 7 * 24 * 3'600'000LL;
// Tries go apart by this at first, twice as long each time, up to the longest: many trainers of one
// daemon neither crowd its start nor sleep long past it.
constexpr milliseconds kFirstPause(20);
constexpr milliseconds kLongestPause(1'000);
// What cannot be taken up again where a call's time ends it (a daemon's start, a segment's
// hand-off) may take so much longer.
constexpr milliseconds kGrace(900);

bool MayPass(loaderd_code code) {
  switch (code) {
    case LOADERD_UNAVAILABLE:
    case LOADERD_RESOURCE_EXHAUSTED:  // the lost session's shares may not be free yet
    case LOADERD_ABORTED:
    case LOADERD_DEADLINE_EXCEEDED: return true;
    default: return false;
  }
}

}  // namespace

milliseconds Reopening::Limit(int64_t reconnect_ms) {
  return milliseconds(reconnect_ms < 0 ? kDefaultLimitMs : std::min(reconnect_ms, kLongestLimitMs));
}

Reopening::Reopening(Job* job, const Opened& as, bool inline_delivery, const Status& why,
                     Clock::time_point lost)
    : job_(job),
      as_(as),
      delivery_(inline_delivery ? DeliveryWay::kInline : DeliveryWay::kMapped),
      limit_(Limit(job->options.reconnect_ms)),
      lost_(lost),
      why_(why),
      random_(static_cast<unsigned>(::getpid()) ^
              static_cast<unsigned>(lost_.time_since_epoch().count())),
      pause_(kFirstPause) {
  BackOff();
}

milliseconds Reopening::waited() const {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - lost_);
}

void Reopening::BackOff() {
  channel_.reset();
  handshake_.reset();
  std::uniform_int_distribution<int64_t> jitter(pause_.count() / 2, pause_.count());
  next_try_ = Clock::now() + milliseconds(jitter(random_));
  pause_ = std::min(2 * pause_, kLongestPause);
}

Status Reopening::TooLong() const {
  return Error(LOADERD_UNAVAILABLE, "no daemon went on at " + Printable(job_->place.socket) +
                                        " within " + std::to_string(limit_.count()) +
                                        " ms (reconnect_ms): " + why_.text);
}

Status Reopening::Sleep(Clock::time_point until) {
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
  if (left <= milliseconds(0)) return Ok();
  if (::poll(nullptr, 0, static_cast<int>(std::min(left, kLongestPause).count())) < 0 &&
      errno == EINTR) {
    return Error(LOADERD_INTERRUPTED, "interrupted by a signal while waiting for the daemon at " +
                                          Printable(job_->place.socket));
  }
  return Ok();
}

Status Reopening::Go(Clock::time_point until, Session** session) {
  for (;;) {
    const auto end = lost_ + limit_;
    if (Clock::now() >= end) return TooLong();
    if (channel_ == nullptr && Clock::now() < next_try_) {
      Status slept = Sleep(std::min({next_try_, end, until}));
      if (!slept.ok()) return slept;
    } else {
      Status tried = Try(std::min(until, end), session);
      if (tried.code == LOADERD_DEADLINE_EXCEEDED && channel_ != nullptr) {
        why_ = std::move(tried);
      } else if (MayPass(tried.code)) {
        why_ = std::move(tried);
        BackOff();
      } else {
        return tried;
      }
    }
    if (Clock::now() >= until && until < end) {
      return Error(LOADERD_DEADLINE_EXCEEDED, "still waiting for the daemon at " +
                                                  Printable(job_->place.socket) + ": " + why_.text);
    }
  }
}

// A connection to the daemon of the same files, with the job sent.
Status Reopening::Reach(Patience* patience) {
  std::unique_ptr<GuardedFd> fd;
  Status status = ConnectTo(job_->options, job_->place, patience, &fd);
  if (!status.ok()) return status;
  if (job_->place.origin == Origin::kUser && IsElsewhere(job_->place.socket)) {
    status = LocateUserHere(&job_->place);
    if (!status.ok()) return status;
    status = ConnectTo(job_->options, job_->place, patience, &fd);
    if (!status.ok()) return status;
  }
  channel_ = std::make_unique<Channel>(std::move(fd), job_->place.socket);
  handshake_ = std::make_unique<Handshake>(channel_.get(), job_->json, delivery_,
                                           job_->options.client, as_.order_fingerprint);
  return Ok();
}

Status Reopening::Try(Clock::time_point until, Session** session) {
  const auto patience_for = [&](milliseconds least) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    Patience patience(std::max(left, least).count(), nullptr, nullptr);
    patience.EndBySignal();
    return patience;
  };
  if (channel_ == nullptr) {
    Patience patience = patience_for(kGrace);
    Status status = Reach(&patience);
    if (!status.ok()) return status;
  }
  Opened opened;
  Patience answer = patience_for(milliseconds(1));
  Status status = handshake_->Await(&answer, &opened);
  if (!status.ok()) return status;
  if (!Layout::Same(opened, as_)) {
    return Error(LOADERD_FAILED_PRECONDITION,
                 "the daemon at " + Printable(job_->place.socket) +
                     " makes other batches of this job than the one before it did; open it anew");
  }
  std::unique_ptr<SegmentMap> segment;
  if (delivery_ == DeliveryWay::kMapped) {
    Patience handing = patience_for(kGrace);
    status = SegmentMap::Fetch(SegmentSocketPath(job_->place.socket), opened.segment_token,
                               opened.segment_bytes, &handing, &segment);
    if (!status.ok()) {
      BackOff();  // the token is good once
      return status;
    }
  }
  handshake_.reset();
  *session = new Session(std::move(channel_), std::move(segment), std::move(opened));
  return Ok();
}

}  // namespace loaderd::client
