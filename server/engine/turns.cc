// SPDX-License-Identifier: Apache-2.0
#include "server/engine/turns.h"

#include <algorithm>
#include <utility>

namespace loaderd::engine {
namespace {

// Until the first samples have been decoded.
constexpr double kGuessedCost = 2e6;
constexpr size_t kFirstSamples = 2;
constexpr double kNewest = 0.25;  // of a member's mean cost, what the last turn counts

}  // namespace

void Turns::Join(uint64_t member, uint32_t uid) {
  const auto [it, added] = users_.try_emplace(uid);
  User& user = it->second;
  if (added) user.start = now_;
  ++user.members;
  members_.emplace(member, Member{.uid = uid, .start = user.now});
}

void Turns::Leave(uint64_t member) {
  const auto it = members_.find(member);
  if (it == members_.end()) return;
  const uint32_t uid = it->second.uid;
  User& user = users_.at(uid);
  std::erase(user.queued, member);
  std::erase(starved_, member);
  members_.erase(it);
  if (--user.members == 0) users_.erase(uid);
}

// One that has all along had work is never so far behind: only who was held back is moved on.
void Turns::Queue(uint64_t id, Member& member) {
  User& user = users_.at(member.uid);
  user.start = std::max(user.start, now_ - kCredit);
  member.start = std::max(member.start, user.now - kCredit);
  member.state = State::kQueued;
  member.woken = false;
  user.queued.push_back(id);
}

void Turns::Wake(uint64_t member) {
  const auto it = members_.find(member);
  if (it == members_.end()) return;
  if (it->second.state == State::kIdle) Queue(member, it->second);
  if (it->second.state == State::kAsked) it->second.woken = true;
}

bool Turns::empty() const {
  return std::ranges::all_of(users_, [](const auto& user) { return user.second.queued.empty(); });
}

Turn Turns::TurnOf(uint64_t id, const Member& member, const User& user) const {
  Turn turn{.member = id, .uid = member.uid, .tag = user.start};
  const bool known = member.sample_cost > 0;
  const double each = known ? member.sample_cost : kGuessedCost;
  const size_t most = known ? limits_.samples : std::min(limits_.samples, kFirstSamples);
  const double affordable = std::max(1.0, kLongestTurn / each);
  turn.samples = affordable < static_cast<double>(most) ? static_cast<size_t>(affordable) : most;
  turn.charged = each * static_cast<double>(turn.samples);
  return turn;
}

std::optional<Turn> Turns::Next() {
  User* first = nullptr;
  for (auto& [uid, user] : users_) {
    if (user.queued.empty()) continue;
    if (first == nullptr || user.start < first->start) first = &user;
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

void Turns::Charge(const Turn& turn, double cost) {
  if (const auto user = users_.find(turn.uid); user != users_.end()) user->second.start += cost;
  if (const auto member = members_.find(turn.member); member != members_.end())
    member->second.start += cost;
}

void Turns::EndAsking(Turn& turn, size_t taken) {
  const double taken_part = static_cast<double>(taken) / static_cast<double>(turn.samples);
  Charge(turn, turn.charged * (taken_part - 1));
  turn.charged *= taken_part;
  const auto it = members_.find(turn.member);
  if (it == members_.end()) return;
  Member& member = it->second;
  if (taken > 0) ++member.reads;
  if (taken > 0 && member.reads >= limits_.reads_each) {
    member.state = State::kFull;
  } else if (taken > 0 || member.woken) {
    Queue(turn.member, member);
  } else {
    member.state = State::kIdle;
  }
}

void Turns::EndRead(const Turn& turn) {
  const auto it = members_.find(turn.member);
  if (it == members_.end()) return;
  --it->second.reads;
  if (it->second.state == State::kFull) Queue(turn.member, it->second);
}

void Turns::Settle(const Turn& turn, double cost, size_t samples) {
  Charge(turn, cost - turn.charged);
  const auto it = members_.find(turn.member);
  if (it == members_.end() || samples == 0) return;
  const double each = std::max(1.0, cost / static_cast<double>(samples));
  double& mean = it->second.sample_cost;
  mean = mean == 0 ? each : mean + kNewest * (each - mean);
}

void Turns::Starve(const Turn& turn) {
  Charge(turn, -turn.charged);
  const auto it = members_.find(turn.member);
  if (it == members_.end()) return;
  it->second.state = State::kStarved;
  starved_.push_back(turn.member);
}

void Turns::FeedStarved() {
  if (starved_.empty()) return;
  for (const uint64_t id : std::exchange(starved_, {})) Queue(id, members_.at(id));
}

}  // namespace loaderd::engine
