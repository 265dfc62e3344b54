// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/container/flat_hash_map.h"

namespace loaderd::engine {

// Whose turn it is to have a sample read: round-robin over the members that may have work, each in
// at most `reads_each` reads at once, so that one with stuck storage leaves readers to the others.
// Not thread-safe.
//
//          Wake              Next             EndAsking(took)
//   IDLE ---------> QUEUED ---------> ASKED ------------------> QUEUED, or FULL at its limit until
//   EndRead
//     ^                                 | EndAsking(nothing)         (IDLE; QUEUED when woken
//     meanwhile)
//     +---------------------------------+ Starve -------------> STARVED until FeedStarved
class Turns {
 public:
  explicit Turns(int reads_each) : reads_each_(reads_each) {}

  void Join(uint64_t member);
  void Leave(uint64_t member);  // calls about one that has left do nothing
  void Wake(uint64_t member);

  bool empty() const { return queue_.empty(); }
  std::optional<uint64_t> Next();  // its answer is told by EndAsking or Starve
  void EndAsking(uint64_t member, bool took);
  void EndRead(uint64_t member);

  // What it needs to read is not to be had now.
  void Starve(uint64_t member);
  bool any_starved() const { return !starved_.empty(); }
  void FeedStarved();

 private:
  enum class State { kIdle, kQueued, kAsked, kFull, kStarved };
  struct Seat {
    State state = State::kIdle;
    bool woken = false;  // while it was asked
    int reads = 0;
  };
  void Queue(uint64_t member, Seat& seat);

  const int reads_each_;
  absl::flat_hash_map<uint64_t, Seat> seats_;
  std::deque<uint64_t> queue_;
  std::deque<uint64_t> starved_;
};

}  // namespace loaderd::engine
