// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/base/budget.h"
#include "server/base/status.h"
#include "server/base/unique_fd.h"
#include "server/dataset/catalog.h"
#include "server/engine/engine.h"

namespace boost::asio {
class io_context;
}

namespace loaderd::rpc {

// The daemon's front: accepts on both sockets, knows who each peer is by the kernel's word, serves
// the Loader and Admin services over gRPC and hands segments out. Translates, checks and forwards;
// decides nothing about batches.
//
// Start, Drain, Shutdown and the destructor are called on the thread that runs `io`; gRPC's own
// threads run the handlers.
class Server {
 public:
  // What the configuration asks of the machine.
  struct Needs {
    uint64_t descriptors = 0;
    std::string arithmetic;
    uint64_t threads = 0;
    uint64_t slot_bytes = 0;
    std::vector<std::string> lowered;
  };
  // Told by loaderctl status, beside what the server itself knows.
  struct Facts {
    std::string version;
    std::string socket;
    std::string segment_socket;
    std::string fleet_reason;
    std::string mount_namespace;
    uint32_t fleet_threads = 0;
    uint32_t reader_threads = 0;
    uint64_t descriptor_soft_limit = 0;
    uint64_t descriptor_hard_limit = 0;
    Needs needs;
  };
  struct Options {
    boost::asio::io_context* io = nullptr;  // outlives the server
    UniqueFd listener;                      // bound, listening, non-blocking
    UniqueFd segment_listener;
    engine::Engine* engine = nullptr;
    dataset::Catalog* catalog = nullptr;
    Budget* descriptors = nullptr;       // two a connection; accept pauses without
    uint32_t max_connections = 0;        // accept pauses there too; 0: as many as descriptors allow
    std::vector<const Budget*> budgets;  // shown by status
    bool user_mode = false;              // refuse every uid but our own
    Facts facts;
    std::function<void()> on_drain;  // Admin.Drain was called; on io's thread
    // Connections (or pending segment hand-offs) came to, or left, this number; on io's thread.
    std::function<void(size_t connections)> on_connections;
    std::chrono::milliseconds silence_limit =
        std::chrono::seconds(10);  // a peer that has begun no call by then is closed
  };
  static StatusOr<std::unique_ptr<Server>> Start(Options options);
  virtual ~Server() = default;  // after Shutdown

  // No new sessions: Open answers kUnavailable "daemon is stopping". Running ones go on.
  virtual void Drain() = 0;
  virtual uint32_t sessions() const = 0;
  // Stops accepting, ends every session, waits for gRPC until `deadline` and returns whether all
  // has ended by then.
  virtual bool Shutdown(std::chrono::steady_clock::time_point deadline) = 0;
  // True when gRPC answered a call to itself within `limit`: what the watchdog asks. On a thread of
  // its own; not io's.
  virtual bool AnswersItself(std::chrono::milliseconds limit) = 0;
};

}  // namespace loaderd::rpc
