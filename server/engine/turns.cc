// SPDX-License-Identifier: Apache-2.0
#include "server/engine/turns.h"

#include <utility>

namespace loaderd::engine {

void Turns::Join(uint64_t member) { seats_.try_emplace(member); }

void Turns::Leave(uint64_t member) {
  seats_.erase(member);
  std::erase(queue_, member);
  std::erase(starved_, member);
}

void Turns::Queue(uint64_t member, Seat& seat) {
  seat.state = State::kQueued;
  seat.woken = false;
  queue_.push_back(member);
}

void Turns::Wake(uint64_t member) {
  const auto it = seats_.find(member);
  if (it == seats_.end()) return;
  if (it->second.state == State::kIdle) Queue(member, it->second);
  if (it->second.state == State::kAsked) it->second.woken = true;
}

std::optional<uint64_t> Turns::Next() {
  if (queue_.empty()) return std::nullopt;
  const uint64_t member = queue_.front();
  queue_.pop_front();
  seats_[member].state = State::kAsked;
  return member;
}

void Turns::EndAsking(uint64_t member, bool took) {
  const auto it = seats_.find(member);
  if (it == seats_.end()) return;
  Seat& seat = it->second;
  if (took) ++seat.reads;
  if (took && seat.reads >= reads_each_) {
    seat.state = State::kFull;
  } else if (took || seat.woken) {
    Queue(member, seat);
  } else {
    seat.state = State::kIdle;
  }
}

void Turns::EndRead(uint64_t member) {
  const auto it = seats_.find(member);
  if (it == seats_.end()) return;
  --it->second.reads;
  if (it->second.state == State::kFull) Queue(member, it->second);
}

void Turns::Starve(uint64_t member) {
  const auto it = seats_.find(member);
  if (it == seats_.end()) return;
  it->second.state = State::kStarved;
  starved_.push_back(member);
}

void Turns::FeedStarved() {
  if (starved_.empty()) return;
  for (const uint64_t member : std::exchange(starved_, {})) Queue(member, seats_[member]);
}

}  // namespace loaderd::engine
