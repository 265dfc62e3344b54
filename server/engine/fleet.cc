// SPDX-License-Identifier: Apache-2.0
#include "server/engine/fleet.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace loaderd::engine {
namespace {

// Descriptors also come back from connections, which tell nobody: look again after so long.
constexpr std::chrono::milliseconds kStarvedWait{20};

// Half of the readers, rounded up, and never all buffers where there is more than one.
int ReadsEach(const Fleet::Options& options) {
  const int reads = std::min<int>(options.readers,
                                  static_cast<int>(std::min<uint32_t>(options.buffers, 1 << 20)));
  return std::max(1, (reads + 1) / 2);
}

}  // namespace

Fleet::Fleet(const Options& options)
    : options_(options), turns_(ReadsEach(options)), buffers_(options.buffers) {
  for (int i = 0; i < options.readers; ++i) readers_.emplace_back([this] { Read(); });
  for (int i = 0; i < options.decoders; ++i) decoders_.emplace_back([this] { Decode(); });
}

Fleet::~Fleet() {
  {
    MutexLock lock(mutex_);
    stop_readers_ = true;
    turn_.NotifyAll();
  }
  for (std::thread& reader : readers_) reader.join();
  {
    MutexLock lock(mutex_);
    stop_decoders_ = true;
    encoded_.NotifyAll();
  }
  for (std::thread& decoder : decoders_) decoder.join();
}

void Fleet::Join(uint64_t member, std::shared_ptr<Workload> work) {
  MutexLock lock(mutex_);
  members_.emplace(member, std::move(work));
  turns_.Join(member);
}

void Fleet::Leave(uint64_t member) {
  std::shared_ptr<Workload> work;  // may be the last one: destroyed without the lock
  MutexLock lock(mutex_);
  turns_.Leave(member);
  const auto it = members_.find(member);
  if (it == members_.end()) return;
  work = std::move(it->second);
  members_.erase(it);
}

void Fleet::Wake(uint64_t member) {
  MutexLock lock(mutex_);
  turns_.Wake(member);
  if (!turns_.empty()) turn_.NotifyOne();
}

bool Fleet::Responds() const {
  MutexLock lock(mutex_);
  return true;
}

void Fleet::Read() {
  while (std::optional<Turn> turn = NextTurn()) {
    std::optional<Pass> pass = TakePass(turn->work->uid());
    if (!pass.has_value()) {
      Starve(*std::move(turn));
      continue;
    }
    std::optional<Piece> piece = turn->work->Take();
    EndAsking(turn->member, piece.has_value());
    if (!piece.has_value()) {
      EndUnread(*std::move(turn), *std::move(pass));
      continue;
    }
    if (!turn->work->Read(*piece, *turn->buffer)) piece.reset();
    EndRead(*std::move(turn), *std::move(pass), std::move(piece));
  }
}

std::optional<Fleet::Turn> Fleet::NextTurn() {
  MutexLock lock(mutex_);
  while (!stop_readers_ && (turns_.empty() || buffers_.empty())) WaitForTurn();
  if (stop_readers_) return std::nullopt;
  const uint64_t member = *turns_.Next();
  return Turn{member, members_.at(member), buffers_.Take()};
}

void Fleet::WaitForTurn() {
  if (turns_.any_starved()) {
    if (!turn_.WaitFor(mutex_, kStarvedWait)) turns_.FeedStarved();
  } else if (buffers_.holds_large()) {
    if (turn_.WaitFor(mutex_, BufferPool::kKept)) return;
    auto stale = buffers_.TakeStale(options_.clock->Now());
    mutex_.Unlock();
    stale.clear();
    mutex_.Lock();
  } else {
    turn_.Wait(mutex_);
  }
}

std::optional<Fleet::Pass> Fleet::TakePass(uint32_t uid) {
  if (options_.descriptors == nullptr) return Pass{};
  if (StatusOr<Grant> grant = options_.descriptors->Take(uid, 1); grant.ok())
    return Pass{*std::move(grant), false};
  MutexLock lock(mutex_);
  if (reserve_used_) return std::nullopt;
  reserve_used_ = true;
  return Pass{Grant(), true};
}

void Fleet::Starve(Turn turn) {
  MutexLock lock(mutex_);
  turns_.Starve(turn.member);
  ReturnBuffer(std::move(turn.buffer));
}

void Fleet::EndAsking(uint64_t member, bool took) {
  MutexLock lock(mutex_);
  turns_.EndAsking(member, took);
  if (!turns_.empty()) turn_.NotifyOne();
}

void Fleet::EndUnread(Turn turn, Pass pass) {
  pass.grant.Reset();
  MutexLock lock(mutex_);
  ReturnPass(pass);
  ReturnBuffer(std::move(turn.buffer));
}

void Fleet::EndRead(Turn turn, Pass pass, std::optional<Piece> decode) {
  pass.grant.Reset();
  MutexLock lock(mutex_);
  ReturnPass(pass);
  turns_.EndRead(turn.member);
  if (decode.has_value()) {
    queue_.push_back({std::move(turn.work), *decode, std::move(turn.buffer)});
    encoded_.NotifyOne();
  } else {
    ReturnBuffer(std::move(turn.buffer));
  }
  if (!turns_.empty()) turn_.NotifyOne();
}

void Fleet::ReturnPass(Pass& pass) {
  if (pass.reserve) reserve_used_ = false;
  turns_.FeedStarved();
}

void Fleet::ReturnBuffer(std::unique_ptr<ByteBuffer> buffer) {
  buffers_.Return(std::move(buffer), options_.clock->Now());
  turn_.NotifyOne();
}

void Fleet::Decode() {
  transform::Scratch scratch;
  while (std::optional<Encoded> encoded = NextEncoded()) {
    encoded->work->Decode(encoded->piece, encoded->buffer->bytes(), scratch);
    encoded->work.reset();
    MutexLock lock(mutex_);
    ReturnBuffer(std::move(encoded->buffer));
  }
}

std::optional<Fleet::Encoded> Fleet::NextEncoded() {
  MutexLock lock(mutex_);
  while (queue_.empty() && !stop_decoders_) encoded_.Wait(mutex_);
  if (queue_.empty()) return std::nullopt;
  Encoded encoded = std::move(queue_.front());
  queue_.pop_front();
  return encoded;
}

}  // namespace loaderd::engine
