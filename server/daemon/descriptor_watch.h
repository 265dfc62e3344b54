// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>  // before Asio: Boost 1.74 misses it under GCC 12

namespace boost::asio {
class io_context;
}

namespace loaderd::daemon {

// When to speak of the number of open descriptors. Pure.
class DescriptorAlarm {
 public:
  enum class Turn { kNone, kRaised, kFallen };
  // Raised at 80 % of the limit, once; fallen again below 70 %, so that a number that swings around
  // the mark is one event.
  Turn Look(uint64_t open, uint64_t limit);

 private:
  bool raised_ = false;
};

// What the alarm says, one line: the numbers, counts by kind and the cure.
std::string DescriptorWarning(uint64_t open, uint64_t limit,
                              const std::map<std::string, uint64_t>& kinds);

// Looks at this process every two seconds and logs what the alarm says. The limit is asked each
// time, since prlimit(1) can change it. On the thread that runs `io`.
class DescriptorWatch {
 public:
  explicit DescriptorWatch(boost::asio::io_context& io) : timer_(io) {}
  void Start();

 private:
  void Look();

  boost::asio::steady_timer timer_;
  DescriptorAlarm alarm_;
};

}  // namespace loaderd::daemon
