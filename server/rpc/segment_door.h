// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>  // before Asio: Boost 1.74 misses it under GCC 12

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "server/base/budget.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/base/unique_fd.h"
#include "server/rpc/lifetime.h"
#include "server/rpc/peer.h"

namespace loaderd::rpc {

// Hands segments out. A client sends its 16-byte token on the segment socket and gets one byte 0
// with the memfd (SCM_RIGHTS), or one byte 1 with a text that says why not; then the connection
// ends. A token is good once, for the uid and process that opened its session.
class SegmentDoor {
 public:
  static constexpr size_t kTokenBytes = 16;

  SegmentDoor(boost::asio::io_context& io, std::chrono::milliseconds silence_limit,
              std::function<void()> on_change);
  ~SegmentDoor();

  // Any thread. A new token for `segment_fd`, which stays valid until Revoke.
  StatusOr<std::string> Issue(const Peer& peer, int segment_fd);
  // Any thread: unused tokens of this descriptor are worth nothing from here on.
  void Revoke(const std::string& token);

  // Io's thread: serves one accepted connection on the segment socket.
  void Serve(UniqueFd fd, Peer peer, Grant grant);
  size_t size() const { return visitors_.size(); }

 private:
  struct Visitor;
  // shared_ptr: a handler that Asio has queued already still refers to its visitor after it left.
  using VisitorPtr = std::shared_ptr<Visitor>;
  struct Entry {
    Peer peer;
    int segment_fd;
  };
  void Read(const VisitorPtr& visitor);
  void Answer(const VisitorPtr& visitor);
  void Leave(const VisitorPtr& visitor);
  // The segment's duplicate for a right token, else why not.
  StatusOr<UniqueFd> Redeem(const std::string& token, const Peer& peer);

  boost::asio::io_context& io_;
  const std::chrono::milliseconds silence_limit_;
  const std::function<void()> on_change_;
  std::unordered_set<VisitorPtr> visitors_;  // on io's thread
  uint64_t refused_ = 0;                     // since the last log line
  std::chrono::steady_clock::time_point refused_logged_;
  Lifetime lifetime_;

  Mutex mutex_;
  absl::flat_hash_map<std::string, Entry> tokens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace loaderd::rpc
