// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
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

// Whose turn it is: the fleet's CPU time is shared by weight among the users that have work, and
// evenly among a user's sessions, by start-time fair queueing (Goyal, Vin, Cheng 1996) on two
// levels. A turn is charged by estimate when it begins and settled when its cost is known.
//
// Readers are shared too: a member and a user each have at most a part of them. Reads whose threads
// were written off are counted as stuck; who has too many of those begins no more reads, and is
// told of by NextStranded instead. Not thread-safe.
//
//          Wake            Next              EndAsking(took)
//   IDLE --------> QUEUED -------> ASKED -------------------> QUEUED; FULL at its limit until
//   EndRead; STRANDED with too many stuck until EndStuck
//     ^                              | EndAsking(0)       (IDLE; QUEUED when woken meanwhile)
//     +------------------------------+ Starve ----------> STARVED until FeedStarved
class FairTurns {
 public:
  struct Limits {
    size_t samples = 1;  // of a turn
    int reads_each = 1;  // at once
    int reads_each_user = 1;
    int stuck_each = std::numeric_limits<int>::max();
    int stuck_each_user = std::numeric_limits<int>::max();
  };
  // No turn is meant to cost more, so that one with heavy samples is not long in the way.
  static constexpr double kLongestTurn = 40e6;
  // What one that was held back (by its slots, say) may catch up, in CPU time.
  static constexpr double kCredit = 100e6;

  explicit FairTurns(const Limits& limits) : limits_(limits) {}

  // A user's weight is what was given last.
  void Join(uint64_t member, uint32_t uid, double weight);
  void Leave(uint64_t member);  // what its turns still do is counted for its user
  void Wake(uint64_t member);

  bool empty() const;
  std::optional<Turn> Next();  // its answer is told by EndAsking or Starve
  // A turn in vain where taken is 0, else a read that has begun.
  void EndAsking(const Turn& turn, size_t taken);
  void EndRead(const Turn& turn);
  // `cost` in ns, of `samples` that were worked on.
  void Settle(const Turn& turn, double cost, size_t samples);

  // What it needs to read is not to be had now.
  void Starve(const Turn& turn);
  bool any_starved() const { return !starved_.empty(); }
  void FeedStarved();

  // One more of the turn's reads is stuck. True: its member is stranded now.
  bool WriteOff(const Turn& turn);
  void EndStuck(const Turn& turn);
  // All stranded members' turns to give samples up, each answered by EndAsking(turn, 0).
  std::vector<Turn> Stranded();

 private:
  enum class State { kIdle, kQueued, kAsked, kFull, kStarved, kStranded };
  struct Member {
    uint32_t uid = 0;
    State state = State::kIdle;
    bool woken = false;      // while it was asked
    double start = 0;        // of its next turn, in its user's virtual time
    double sample_cost = 0;  // ns; 0: not known yet
    int reads = 0;
    int stuck = 0;
  };
  struct User {
    double weight = 1;
    double start = 0;  // in the virtual time of all
    double now = 0;    // virtual time among its members
    int members = 0;
    int reads = 0;
    int stuck = 0;
    std::vector<uint64_t> queued;
  };

  bool MayRead(const User& user) const {
    return !user.queued.empty() && user.reads < limits_.reads_each_user;
  }
  bool IsStranded(const Member& member, const User& user) const;
  void Queue(uint64_t id, Member& member);
  Turn TurnOf(uint64_t id, const Member& member, const User& user) const;
  void Charge(const Turn& turn, double cost);
  void ForgetIfGone(uint32_t uid);

  const Limits limits_;
  double now_ = 0;  // virtual time among users
  absl::flat_hash_map<uint64_t, Member> members_;
  absl::flat_hash_map<uint32_t, User> users_;
  std::vector<uint64_t> starved_;
};

}  // namespace loaderd::engine
