// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <utility>  // before Asio: Boost 1.74 misses it under GCC 12

#include "server/base/budget.h"
#include "server/base/status.h"
#include "server/base/unique_fd.h"
#include "server/rpc/lifetime.h"
#include "server/rpc/peer.h"

namespace loaderd::rpc {

// The uid under which descriptors of connections are accounted: a peer's uid is not known before
// accept.
inline constexpr uint32_t kNobodyYet = UINT32_MAX;

// Accepts on one listening socket. Takes its descriptors' Grant first and pauses without one, so
// that accept never meets EMFILE and never spins: waiting peers stay in the listener's backlog. On
// io's thread only.
class Acceptor {
 public:
  // `accepted` gets each connection: non-blocking, close-on-exec, with the Grant for
  // `descriptors_each`.
  using Accepted = std::function<void(UniqueFd fd, Peer peer, Grant grant)>;
  // While `full` says so, nobody is accepted.
  Acceptor(boost::asio::io_context& io, UniqueFd listener, Budget& budget,
           uint64_t descriptors_each, std::function<bool()> full, Accepted accepted);

  void Start() { Wait(); }
  // No connection is accepted any more; the listener is closed.
  void Stop();
  // Descriptors may be free again.
  void Retry();

 private:
  void Wait();
  void AcceptAll();
  void Pause(const char* why);

  boost::asio::posix::stream_descriptor listener_;
  boost::asio::steady_timer pause_;
  Budget& budget_;
  const uint64_t descriptors_each_;
  const std::function<bool()> full_;
  const Accepted accepted_;
  bool paused_ = false;
  bool told_ = false;  // the pause has been logged
  Lifetime lifetime_;
};

}  // namespace loaderd::rpc
