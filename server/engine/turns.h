// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace loaderd::engine {

// A leave to take some samples and to read them.
struct Turn {
  uint64_t member = 0;
  uint32_t uid = 0;
  double tag = 0;      // runs are decoded in the order of their tags
  size_t samples = 0;  // at most
  double charged = 0;  // ns of CPU, as estimated
};

// Whose turn it is to have samples read: the fleet's CPU time is shared evenly among the users
// that have work, and among each one's members, by start-time fair queueing (Goyal, Vin, Cheng
// 1996) on two levels. A turn is charged by estimate when it begins, and settled when its cost is
// known. Each member has at most `reads_each` reads at once, so that one with stuck storage leaves
// readers to the others. Not thread-safe.
//
//          Wake             Next             EndAsking(took)
//   IDLE ---------> QUEUED ---------> ASKED ------------------> QUEUED, or FULL at its limit until
//   EndRead
//     ^                                 | EndAsking(0)            (IDLE; QUEUED when woken
//     meanwhile)
//     +---------------------------------+ Starve -------------> STARVED until FeedStarved
class Turns {
 public:
  struct Limits {
    size_t samples = 1;  // of a turn
    int reads_each = 1;  // at once
  };
  // No turn is meant to cost more, so that one with heavy samples is not long in the way.
  static constexpr double kLongestTurn = 40e6;
  // What one that was held back (by its slots, say) may catch up, in CPU time.
  static constexpr double kCredit = 100e6;

  explicit Turns(const Limits& limits) : limits_(limits) {}

  void Join(uint64_t member, uint32_t uid);
  void Leave(uint64_t member);  // calls about one that has left do nothing
  void Wake(uint64_t member);

  bool empty() const;
  std::optional<Turn> Next();  // its answer is told by EndAsking or Starve
  // How many samples it took: none, or those of a read that has begun.
  void EndAsking(Turn& turn, size_t taken);
  void EndRead(const Turn& turn);
  // After a turn that took something: it cost so many ns, for so many samples.
  void Settle(const Turn& turn, double cost, size_t samples);

  // What it needs to read is not to be had now.
  void Starve(const Turn& turn);
  bool any_starved() const { return !starved_.empty(); }
  void FeedStarved();

 private:
  enum class State { kIdle, kQueued, kAsked, kFull, kStarved };
  struct Member {
    uint32_t uid = 0;
    State state = State::kIdle;
    bool woken = false;      // while it was asked
    double start = 0;        // of its next turn, in its user's virtual time
    double sample_cost = 0;  // ns; 0: not known yet
    int reads = 0;
  };
  struct User {
    double start = 0;  // in the virtual time of all
    double now = 0;    // virtual time among its members
    int members = 0;
    std::vector<uint64_t> queued;
  };

  void Queue(uint64_t id, Member& member);
  Turn TurnOf(uint64_t id, const Member& member, const User& user) const;
  void Charge(const Turn& turn, double cost);

  const Limits limits_;
  double now_ = 0;  // virtual time among users
  absl::flat_hash_map<uint64_t, Member> members_;
  absl::flat_hash_map<uint32_t, User> users_;
  std::vector<uint64_t> starved_;
};

}  // namespace loaderd::engine
