// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/segment_door.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace loaderd::rpc {
namespace {

constexpr std::chrono::minutes kRefusedLogEvery(1);

// Answers are a few hundred bytes on a fresh socket: they fit its buffer, so one call that does not
// block is enough.
void SendRefusal(int socket, std::string_view why) {
  std::string answer(1, '\1');
  answer += why;
  [[maybe_unused]] const ssize_t sent =
      send(socket, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void SendSegment(int socket, int segment) {
  char ok = 0;
  iovec payload = {.iov_base = &ok, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &segment, sizeof(int));
  [[maybe_unused]] const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

struct SegmentDoor::Visitor {
  Visitor(boost::asio::io_context& io, int fd)
      : socket(io, boost::asio::local::stream_protocol(), fd), timer(io) {}

  boost::asio::local::stream_protocol::socket socket;
  boost::asio::steady_timer timer;
  Peer peer;
  Grant grant;
  std::string token;
};

SegmentDoor::SegmentDoor(boost::asio::io_context& io, std::chrono::milliseconds silence_limit,
                         std::function<void()> on_change)
    : io_(io), silence_limit_(silence_limit), on_change_(std::move(on_change)) {}

SegmentDoor::~SegmentDoor() = default;

StatusOr<std::string> SegmentDoor::Issue(const Peer& peer, int segment_fd) {
  std::string token(kTokenBytes, '\0');
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    return ErrnoStatus(errno, "getrandom for a segment token");
  }
  MutexLock lock(mutex_);
  tokens_[token] = Entry{.peer = peer, .segment_fd = segment_fd};
  return token;
}

void SegmentDoor::Revoke(const std::string& token) {
  MutexLock lock(mutex_);
  tokens_.erase(token);
}

StatusOr<UniqueFd> SegmentDoor::Redeem(const std::string& token, const Peer& peer) {
  MutexLock lock(mutex_);
  const auto it = tokens_.find(token);
  if (it == tokens_.end()) {
    return absl::PermissionDeniedError(
        "segment token: unknown or used already; a session's token is good once, while the session "
        "is open");
  }
  // Not used up by a stranger: the session's owner may still come.
  if (it->second.peer.uid != peer.uid || it->second.peer.pid != peer.pid) {
    return absl::PermissionDeniedError(
        absl::StrCat("segment token: belongs to another process (asked by uid ", peer.uid, " pid ",
                     peer.pid, ")"));
  }
  UniqueFd segment(fcntl(it->second.segment_fd, F_DUPFD_CLOEXEC, 0));
  if (!segment.ok()) return ErrnoStatus(errno, "duplicate a segment's descriptor");
  tokens_.erase(it);
  return segment;
}

void SegmentDoor::Serve(UniqueFd fd, Peer peer, Grant grant) {
  const auto visitor = std::make_shared<Visitor>(io_, fd.release());
  visitor->peer = peer;
  visitor->grant = std::move(grant);
  visitors_.insert(visitor);
  visitor->timer.expires_after(silence_limit_);
  visitor->timer.async_wait(
      [this, visitor, alive = lifetime_.token()](const boost::system::error_code& error) {
        if (!error && !alive.expired()) Leave(visitor);
      });
  Read(visitor);
  on_change_();
}

void SegmentDoor::Read(const VisitorPtr& visitor) {
  visitor->socket.async_wait(
      boost::asio::socket_base::wait_read,
      [this, visitor, alive = lifetime_.token()](const boost::system::error_code& error) {
        if (error || alive.expired() || !visitor->socket.is_open()) return;  // it left
        char bytes[kTokenBytes];
        const size_t missing = kTokenBytes - visitor->token.size();
        const ssize_t got = recv(visitor->socket.native_handle(), bytes, missing, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Read(visitor);
        if (got <= 0) return Leave(visitor);
        visitor->token.append(bytes, static_cast<size_t>(got));
        if (visitor->token.size() < kTokenBytes) return Read(visitor);
        Answer(visitor);
      });
}

void SegmentDoor::Answer(const VisitorPtr& visitor) {
  const StatusOr<UniqueFd> segment = Redeem(visitor->token, visitor->peer);
  if (segment.ok()) {
    SendSegment(visitor->socket.native_handle(), segment->get());
  } else {
    SendRefusal(visitor->socket.native_handle(), MessageOf(segment.status()));
    ++refused_;
    const auto now = std::chrono::steady_clock::now();
    if (now - refused_logged_ >= kRefusedLogEvery) {
      LogWarning(absl::StrCat("segment refused uid=", visitor->peer.uid, " pid=", visitor->peer.pid,
                              " count=", refused_, " reason=", MessageOf(segment.status())));
      refused_logged_ = now;
      refused_ = 0;
    }
  }
  Leave(visitor);
}

void SegmentDoor::Leave(const VisitorPtr& visitor) {
  if (visitors_.erase(visitor) == 0) return;
  boost::system::error_code ignored;
  visitor->socket.close(ignored);
  visitor->timer.cancel();
  visitor->grant.Reset();
  on_change_();
}

}  // namespace loaderd::rpc
