// SPDX-License-Identifier: Apache-2.0
#include "server/engine/fleet.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/engine/cpu_meter.h"

namespace loaderd::engine {
namespace {

// Descriptors also come back from connections, which tell nobody: look again after so long.
constexpr std::chrono::milliseconds kStarvedWait{20};

// As long as they may be while each thread can have one.
size_t RunLength(const Fleet::Options& options) {
  const auto threads = static_cast<size_t>(options.readers + options.decoders);
  return std::clamp<size_t>(options.buffers / threads, 1, Run::kMost);
}

size_t Runs(const Fleet::Options& options) {
  return std::max<size_t>(1, options.buffers / RunLength(options));
}

// Half of the readers, rounded up, and never all runs where there is more than one.
int ReadsEach(const Fleet::Options& options) {
  const int reads =
      std::min(options.readers, static_cast<int>(std::min<size_t>(Runs(options), 1 << 20)));
  return std::max(1, (reads + 1) / 2);
}

}  // namespace

Fleet::Fleet(const Options& options)
    : options_(options),
      turns_({.samples = RunLength(options), .reads_each = ReadsEach(options)}),
      runs_(Runs(options)) {
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
  turns_.Join(member, work->uid());
  members_.emplace(member, std::move(work));
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
  bool reader = false;
  {
    MutexLock lock(mutex_);
    turns_.Wake(member);
    reader = HasTurn();
  }
  if (reader) turn_.NotifyOne();
}

bool Fleet::Responds() const {
  MutexLock lock(mutex_);
  return true;
}

void Fleet::Read() {
  while (std::unique_ptr<Run> run = NextTurn()) {
    std::optional<Pass> pass = TakePass(run->work->uid());
    if (!pass.has_value()) {
      Starve(std::move(run));
      continue;
    }
    run->count = run->work->Take(std::span(run->pieces).first(run->turn.samples));
    EndAsking(*run);
    if (run->count == 0) {
      EndUnread(std::move(run), *std::move(pass));
      continue;
    }
    run->work->Read(*run);
    EndRead(std::move(run), *std::move(pass));
  }
}

std::unique_ptr<Run> Fleet::NextTurn() {
  MutexLock lock(mutex_);
  while (!stop_readers_ && (turns_.empty() || runs_.empty())) WaitForTurn();
  if (stop_readers_) return nullptr;
  std::unique_ptr<Run> run = runs_.Take();
  run->turn = *turns_.Next();
  run->work = members_.at(run->turn.member);
  return run;
}

void Fleet::WaitForTurn() {
  if (turns_.any_starved()) {
    if (!turn_.WaitFor(mutex_, kStarvedWait)) turns_.FeedStarved();
  } else if (runs_.holds_large()) {
    if (turn_.WaitFor(mutex_, RunPool::kKept)) return;
    std::unique_ptr<Run> stale = runs_.TakeStale(options_.clock->Now());
    mutex_.Unlock();
    while (stale != nullptr) stale = std::move(stale->next);
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

void Fleet::Starve(std::unique_ptr<Run> run) {
  run->work.reset();
  MutexLock lock(mutex_);
  turns_.Starve(run->turn);
  Return(std::move(run));  // this reader goes on, and looks after it
}

void Fleet::EndAsking(Run& run) {
  bool reader = false;
  {
    MutexLock lock(mutex_);
    turns_.EndAsking(run.turn, run.count);
    reader = HasTurn();
  }
  if (reader) turn_.NotifyOne();
}

// The reader itself looks for the next turn after these two: no other one need be woken.
void Fleet::EndUnread(std::unique_ptr<Run> run, Pass pass) {
  pass.grant.Reset();
  run->work.reset();
  MutexLock lock(mutex_);
  ReturnPass(pass);
  Return(std::move(run));
}

void Fleet::EndRead(std::unique_ptr<Run> run, Pass pass) {
  pass.grant.Reset();
  const bool decode = run->count > 0;
  if (!decode) run->work.reset();
  {
    MutexLock lock(mutex_);
    ReturnPass(pass);
    turns_.EndRead(run->turn);
    if (decode) {
      queue_.Push(std::move(run));
    } else {
      turns_.Settle(run->turn, 0, 0);
      Return(std::move(run));
    }
  }
  if (decode) encoded_.NotifyOne();
}

void Fleet::ReturnPass(Pass& pass) {
  if (pass.reserve) reserve_used_ = false;
  turns_.FeedStarved();
}

bool Fleet::Return(std::unique_ptr<Run> run) {
  const bool is_large = run->capacity() > RunPool::kLargeBytes;
  runs_.Return(std::move(run), options_.clock->Now());
  return HasTurn() || is_large;
}

void Fleet::Decode() {
  transform::Scratch scratch;
  CpuMeter meter;
  while (std::unique_ptr<Run> run = NextEncoded()) {
    meter.Begin();
    const size_t samples = run->count;  // bad ones are taken out
    run->work->Decode(*run, scratch);
    const std::chrono::nanoseconds cpu = meter.End();
    run->work->AddCpu(cpu);
    run->work.reset();
    bool reader = false;
    {
      MutexLock lock(mutex_);
      turns_.Settle(run->turn, static_cast<double>(cpu.count()), samples);
      reader = Return(std::move(run));
    }
    if (reader) turn_.NotifyOne();
  }
}

std::unique_ptr<Run> Fleet::NextEncoded() {
  MutexLock lock(mutex_);
  while (queue_.empty() && !stop_decoders_) encoded_.Wait(mutex_);
  return queue_.empty() ? nullptr : queue_.Pop();
}

}  // namespace loaderd::engine
