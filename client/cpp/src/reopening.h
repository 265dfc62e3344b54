// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <random>
#include <string>

#include "client/cpp/src/channel.h"
#include "client/cpp/src/handshake.h"
#include "client/cpp/src/locate.h"
#include "client/cpp/src/options.h"
#include "client/cpp/src/proto_codec.h"
#include "client/cpp/src/session.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

// What a session is opened with again.
struct Job {
  std::string json;
  Options options;
  Place place;  // of the daemon that served it
};

// One loss of a daemon: from its end to a session that goes on in its place, or to the end of
// reconnect_ms. Not thread-safe.
class Reopening {
 public:
  using Clock = std::chrono::steady_clock;

  // loaderd_open_options.reconnect_ms as a time.
  static std::chrono::milliseconds Limit(int64_t reconnect_ms);

  // `job` and `as` (what the lost session was) must outlive it. `why` is what the session ended
  // with, `lost` when: the limit counts from there.
  Reopening(Job* job, const Opened& as, bool inline_delivery, const Status& why,
            Clock::time_point lost);

  // Goes on, to about `until`. kOk: *session is here, with one reference. kDeadlineExceeded and
  // kInterrupted: to be called again. All else is the end.
  Status Go(Clock::time_point until, Session** session);
  std::chrono::milliseconds waited() const;

 private:
  Status Try(Clock::time_point until, Session** session);
  Status Reach(Patience* patience);
  Status Sleep(Clock::time_point until);
  Status TooLong() const;
  void BackOff();

  Job* const job_;
  const Opened& as_;
  const DeliveryWay delivery_;
  const std::chrono::milliseconds limit_;
  const Clock::time_point lost_;
  Status why_;  // of the last failed try
  std::minstd_rand random_;
  std::chrono::milliseconds pause_;
  Clock::time_point next_try_ = lost_;
  // A handshake under way.
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Handshake> handshake_;
};

}  // namespace loaderd::client
