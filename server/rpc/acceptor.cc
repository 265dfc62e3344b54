// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/acceptor.h"

#include <sys/socket.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace loaderd::rpc {
namespace {

constexpr std::chrono::milliseconds kPause(100);

StatusOr<Peer> PeerOf(int fd) {
  ucred credentials = {};
  socklen_t length = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return ErrnoStatus(errno, "getsockopt SO_PEERCRED");
  }
  return Peer{.uid = credentials.uid, .pid = credentials.pid};
}

}  // namespace

Acceptor::Acceptor(boost::asio::io_context& io, UniqueFd listener, Budget& budget,
                   uint64_t descriptors_each, std::function<bool()> full, Accepted accepted)
    : listener_(io, listener.release()),
      pause_(io),
      budget_(budget),
      descriptors_each_(descriptors_each),
      full_(std::move(full)),
      accepted_(std::move(accepted)) {}

void Acceptor::Stop() {
  boost::system::error_code ignored;
  listener_.close(ignored);
  pause_.cancel();
}

void Acceptor::Retry() {
  if (paused_) pause_.cancel();  // its handler goes on
}

void Acceptor::Wait() {
  if (!listener_.is_open()) return;
  listener_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [this, alive = lifetime_.token()](const boost::system::error_code& error) {
                         if (!error && !alive.expired()) AcceptAll();
                       });
}

void Acceptor::Pause(const char* why) {
  if (!told_) {
    LogWarning(absl::StrCat("accept paused: ", why, "; waiting peers stay queued"));
    told_ = true;
  }
  paused_ = true;
  pause_.expires_after(kPause);
  pause_.async_wait([this, alive = lifetime_.token()](const boost::system::error_code&) {
    if (alive.expired() || !listener_.is_open()) return;
    paused_ = false;
    Wait();
  });
}

void Acceptor::AcceptAll() {
  while (listener_.is_open()) {
    if (full_()) return Pause("as many as limits.max_connections allows are open");
    StatusOr<Grant> grant = budget_.Take(kNobodyYet, descriptors_each_);
    if (!grant.ok()) return Pause("no descriptors left in the budget (LimitNOFILE)");
    UniqueFd fd(accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.ok()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Wait();
      return Pause(errno == EMFILE || errno == ENFILE ? "the kernel has no descriptors"
                                                      : "accept failed");
    }
    told_ = false;
    StatusOr<Peer> peer = PeerOf(fd.get());
    if (peer.ok()) accepted_(std::move(fd), *peer, *std::move(grant));
  }
}

}  // namespace loaderd::rpc
