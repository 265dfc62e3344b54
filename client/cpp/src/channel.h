// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/cpp/src/fork_guard.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

// One HTTP/2 connection with one gRPC call on it, over a connected non-blocking socket. No call
// blocks: whoever waits polls fd() for events(). Not thread-safe; its owner locks it. The only file
// that knows nghttp2 is channel.cc.
class Channel {
 public:
  static constexpr size_t kMaxMessage = 8u << 20;  // of one reply; nothing is allocated for more

  // `socket` is named in errors. Throws std::bad_alloc, as all members may.
  Channel(std::unique_ptr<GuardedFd> fd, std::string socket);
  ~Channel();

  // Starts the call of `method` ("/package.Service/Method"). Once.
  void Begin(const std::string& method);
  // Queues one request; Write sends it as far as socket and peer's windows allow.
  void Send(const std::string& message);
  void HalfClose();
  void Cancel();
  // Asks the peer for a sign of life; nothing where one is under way.
  void Ping();
  // Closes the descriptor; the call has ended then.
  void Disconnect();

  void Write();
  // Takes in what has come, unless unread replies pile up already.
  void Read();
  // The next whole reply. After the last one ended() says whether, and outcome() how, the call
  // ended.
  std::optional<std::string> Take();

  bool ended() const;
  const Status& outcome() const;  // kUnavailable when the connection broke
  bool heard() const;             // the peer has said anything at all
  // Since anything came, or since the connection was made.
  std::chrono::milliseconds Silence() const;
  // Since a ping of ours that nothing has come after; else 0.
  std::chrono::milliseconds Unanswered() const;
  size_t unsent() const;  // bytes of requests still queued
  int fd() const;         // -1 in a forked child
  short events() const;
  const std::string& socket() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loaderd::client
