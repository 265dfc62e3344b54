// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>  // before Asio: Boost 1.74 misses it under GCC 12
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "server/base/budget.h"
#include "server/base/mutex.h"
#include "server/base/unique_fd.h"
#include "server/engine/engine.h"
#include "server/rpc/lifetime.h"
#include "server/rpc/peer.h"

namespace loaderd::rpc {

// The live gRPC connections: who each peer is, and what it may still map. gRPC tells neither that a
// peer hung up nor lets us end one, and closes a descriptor only after the last call on it; so each
// connection has a second descriptor here, watched for hang-up.
class Connections {
 public:
  struct Options {
    std::chrono::milliseconds silence_limit;  // a peer that has begun no call by then is ended
    std::function<void()> on_change;          // one came or left; on io's thread
  };
  Connections(boost::asio::io_context& io, Options options);
  ~Connections();

  // Io's thread. Returns the descriptor that gRPC is to own.
  StatusOr<int> Add(UniqueFd fd, Peer peer, Grant grant);
  // Io's thread: ends all and drops what they hold.
  void EndAll();

  // Any thread. `grpc_peer` is ServerContext::peer(), "fd:N"; resolve it once, at a call's begin,
  // while gRPC holds N open. nullopt for a peer that is gone already.
  std::optional<Peer> BeginCall(std::string_view grpc_peer);
  // Any thread: keeps `lease` until the connection's end; drops it at once when that has come.
  void Keep(uint64_t connection, std::unique_ptr<engine::SegmentLease> lease);
  // Any thread: the peer's call was refused; it is as silent as before it.
  void Refused(uint64_t connection);
  // Any thread: the peer sees the end of file.
  void End(uint64_t connection);
  size_t size() const;

 private:
  struct Record;
  void Watch(uint64_t connection);
  void Remove(uint64_t connection);
  void Sweep();

  boost::asio::io_context& io_;
  const Options options_;
  boost::asio::steady_timer sweep_;
  uint64_t silent_ended_ = 0;  // since the last log line
  std::chrono::steady_clock::time_point silent_logged_;
  Lifetime lifetime_;

  mutable Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Record>> records_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<int, uint64_t> by_descriptor_
      ABSL_GUARDED_BY(mutex_);  // the newest of a number
};

}  // namespace loaderd::rpc
