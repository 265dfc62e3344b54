// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/client/http2_peer.h"
#include "tests/unit/client/messages.h"

namespace loaderd::client {

// A daemon whose sessions share one segment: real sockets, a real sealed memfd, slots that are lent
// and taken back by the rules. Byte i of batch k is k + 1 everywhere. Tests change what it does by
// its options, and read what it was told.
class FakeDaemon {
 public:
  using Deliver = std::function<bool(FakeDaemon&, PeerConnection&, uint64_t start, uint64_t step)>;
  struct Options {
    said::OpenedSpec opened = {};
    int seals = -1;             // of the segment; -1: those that the protocol demands
    int64_t segment_size = -1;  // -1: as announced
    std::string refusal = {};   // text with which the segment socket refuses
    bool segment_silent = false;
    int extra_descriptors = 0;  // beside the segment's
    bool hold_batches = false;  // deliver nothing until LetGo
    Deliver deliver = nullptr;  // instead of the next batch; true: handled
    std::function<bool(PeerConnection&, const said::Request& open)> on_open =
        nullptr;  // true: handled
    PeerConnection::Options http2 = {};
  };
  FakeDaemon(const std::string& socket, Options options);
  ~FakeDaemon();

  const std::string& socket() const { return socket_; }
  uint8_t* slot(uint32_t number) { return memory_ + number * options_.opened.slot_bytes; }

  // What the clients said, a line a message: "open", "start 1 epoch 0 from 0", "want 1", "release
  // 0,3", "indices 1/0 5,6 last".
  std::vector<std::string> Heard();
  bool HeardWithin(const std::string& line, std::chrono::milliseconds time);
  said::Request last_open();
  void LetGo() { let_go_ = true; }
  int live_connections() const { return live_; }
  bool EndsWithin(std::chrono::milliseconds time);  // no connection is left
  int connections() const { return peer_->connections(); }

 private:
  // Where one session stands.
  struct Place {
    bool inline_delivery = false;
    uint64_t start = 0;
    uint64_t epoch = 0;
    uint64_t step = 0;
    std::vector<uint32_t> free_slots = {};
  };
  void Serve(PeerConnection& peer);
  void DeliverNext(PeerConnection& peer, Place& place);
  void ServeSegments();
  void Note(const said::Request& request);
  bool Within(std::chrono::milliseconds time, const std::function<bool()>& holds);

  const std::string socket_;
  const Options options_;
  int segment_ = -1;
  uint8_t* memory_ = nullptr;
  size_t memory_size_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> heard_;  // under mutex_, as is last_open_
  said::Request last_open_;
  std::atomic<bool> let_go_{false};
  std::atomic<bool> stop_{false};
  std::atomic<int> live_{0};
  int segment_listener_ = -1;
  std::thread segment_thread_;
  std::unique_ptr<Http2Peer> peer_;
};

}  // namespace loaderd::client
