// SPDX-License-Identifier: Apache-2.0
#include "server/engine/fair_turns.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace loaderd::engine {
namespace {

// Until the first samples have been decoded.
constexpr double kGuessedCost = 2e6;
constexpr size_t kFirstSamples = 2;
constexpr double kNewest = 0.25;  // of a member's mean cost, what the last turn counts

}  // namespace

void FairTurns::Join(uint64_t member, uint32_t uid, double weight) {
  assert(weight > 0);
  const auto [it, added] = users_.try_emplace(uid);
  User& user = it->second;
  if (added) user.start = now_;
  user.weight = weight;
  ++user.members;
  members_.emplace(member, Member{.uid = uid, .start = user.now});
}

void FairTurns::Leave(uint64_t member) {
  const auto it = members_.find(member);
  if (it == members_.end()) return;
  const uint32_t uid = it->second.uid;
  User& user = users_.at(uid);
  std::erase(user.queued, member);
  std::erase(starved_, member);
  members_.erase(it);
  --user.members;
  ForgetIfGone(uid);
}

void FairTurns::ForgetIfGone(uint32_t uid) {
  const auto it = users_.find(uid);
  const User& user = it->second;
  if (user.members == 0 && user.reads == 0 && user.stuck == 0) users_.erase(it);
}

bool FairTurns::IsStranded(const Member& member, const User& user) const {
  if (member.stuck >= limits_.stuck_each) return true;
  if (user.stuck < limits_.stuck_each_user) return false;
  // Its other sessions' storage may be well, unless too much speaks against it.
  return member.stuck > 0 || user.stuck / 2 >= limits_.stuck_each_user;
}

void FairTurns::Queue(uint64_t id, Member& member) {
  User& user = users_.at(member.uid);
  member.woken = false;
  if (IsStranded(member, user)) {
    member.state = State::kStranded;
    return;
  }
  if (user.queued.empty() && user.reads == 0)
    user.start = std::max(user.start, now_ - kCredit / user.weight);
  member.start = std::max(member.start, user.now - kCredit);
  member.state = State::kQueued;
  user.queued.push_back(id);
}

void FairTurns::Wake(uint64_t member) {
  const auto it = members_.find(member);
  if (it == members_.end()) return;
  if (it->second.state == State::kIdle) Queue(member, it->second);
  if (it->second.state == State::kAsked) it->second.woken = true;
}

bool FairTurns::empty() const {
  return std::ranges::none_of(users_, [&](const auto& user) { return MayRead(user.second); });
}

Turn FairTurns::TurnOf(uint64_t id, const Member& member, const User& user) const {
  Turn turn{.member = id, .uid = member.uid, .tag = user.start};
  const bool known = member.sample_cost > 0;
  const double each = known ? member.sample_cost : kGuessedCost;
  const size_t most = known ? limits_.samples : std::min(limits_.samples, kFirstSamples);
  const double affordable = std::max(1.0, kLongestTurn / each);
  turn.samples = affordable < static_cast<double>(most) ? static_cast<size_t>(affordable) : most;
  turn.charged = each * static_cast<double>(turn.samples);
  return turn;
}

std::optional<Turn> FairTurns::Next() {
  User* first = nullptr;
  for (auto& [uid, user] : users_) {
    if (MayRead(user) && (first == nullptr || user.start < first->start)) first = &user;
  }
  if (first == nullptr) return std::nullopt;
  const auto at = std::ranges::min_element(first->queued, {},
                                           [&](uint64_t id) { return members_.at(id).start; });
  const uint64_t id = *at;
  first->queued.erase(at);  // keeps the order of those that are even
  Member& member = members_.at(id);
  member.state = State::kAsked;
  now_ = std::max(now_, first->start);
  first->now = std::max(first->now, member.start);
  const Turn turn = TurnOf(id, member, *first);
  Charge(turn, turn.charged);
  return turn;
}

void FairTurns::Charge(const Turn& turn, double cost) {
  if (const auto user = users_.find(turn.uid); user != users_.end())
    user->second.start += cost / user->second.weight;
  if (const auto member = members_.find(turn.member); member != members_.end())
    member->second.start += cost;
}

void FairTurns::EndAsking(const Turn& turn, size_t taken) {
  if (taken < turn.samples) {
    const double all = static_cast<double>(turn.samples);
    Charge(turn, turn.charged * (static_cast<double>(taken) / all - 1));
  }
  const auto it = members_.find(turn.member);
  if (taken > 0) {
    if (const auto user = users_.find(turn.uid); user != users_.end()) ++user->second.reads;
    if (it != members_.end()) ++it->second.reads;
  }
  if (it == members_.end()) return;
  Member& member = it->second;
  if (taken > 0 && member.reads >= limits_.reads_each) {
    member.state = State::kFull;
  } else if (taken > 0 || member.woken) {
    Queue(turn.member, member);
  } else {
    member.state = State::kIdle;
  }
}

void FairTurns::EndRead(const Turn& turn) {
  if (const auto it = members_.find(turn.member); it != members_.end()) {
    --it->second.reads;
    if (it->second.state == State::kFull) Queue(turn.member, it->second);
  }
  --users_.at(turn.uid).reads;
  ForgetIfGone(turn.uid);
}

void FairTurns::Settle(const Turn& turn, double cost, size_t samples) {
  Charge(turn, cost - turn.charged);
  const auto it = members_.find(turn.member);
  if (it == members_.end() || samples == 0) return;
  const double each = std::max(1.0, cost / static_cast<double>(samples));
  double& mean = it->second.sample_cost;
  mean = mean == 0 ? each : mean + kNewest * (each - mean);
}

void FairTurns::Starve(const Turn& turn) {
  Charge(turn, -turn.charged);
  const auto it = members_.find(turn.member);
  if (it == members_.end()) return;
  it->second.state = State::kStarved;
  starved_.push_back(turn.member);
}

void FairTurns::FeedStarved() {
  if (starved_.empty()) return;
  for (const uint64_t id : std::exchange(starved_, {})) Queue(id, members_.at(id));
}

bool FairTurns::WriteOff(const Turn& turn) {
  User& user = users_.at(turn.uid);
  ++user.stuck;
  const auto it = members_.find(turn.member);
  if (it != members_.end()) ++it->second.stuck;
  // Those of the user that wait may be stranded by it.
  std::erase_if(user.queued, [&](uint64_t id) {
    Member& member = members_.at(id);
    if (!IsStranded(member, user)) return false;
    member.state = State::kStranded;
    return true;
  });
  return it == members_.end() || IsStranded(it->second, user);
}

void FairTurns::EndStuck(const Turn& turn) {
  User& user = users_.at(turn.uid);
  --user.stuck;
  if (const auto it = members_.find(turn.member); it != members_.end()) --it->second.stuck;
  for (auto& [id, member] : members_) {
    if (member.uid == turn.uid && member.state == State::kStranded) Queue(id, member);
  }
  ForgetIfGone(turn.uid);
}

std::vector<Turn> FairTurns::Stranded() {
  std::vector<Turn> turns;
  for (auto& [id, member] : members_) {
    if (member.state != State::kStranded) continue;
    member.state = State::kAsked;
    turns.push_back({.member = id, .uid = member.uid, .samples = limits_.samples});
  }
  return turns;
}

}  // namespace loaderd::engine
