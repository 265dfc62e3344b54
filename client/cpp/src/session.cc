// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/session.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <utility>

#include "client/cpp/src/text.h"

namespace loaderd::client {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A poll that began before another thread queued output, or closed the session, looks again after
// this time.
constexpr milliseconds kLongestPoll(200);
constexpr size_t kMaxUnsent = 32u << 20;
constexpr size_t kIndicesInMessage = 32768;
// A daemon that has said nothing for so long is asked whether it is there.
constexpr milliseconds kQuiet(5'000);

}  // namespace

Memory AllocateAligned(uint64_t bytes) {
  constexpr uint64_t kAlignment = 64;
  if (bytes > SIZE_MAX - kAlignment) throw std::bad_alloc();
  const size_t size = std::max<uint64_t>((bytes + kAlignment - 1) / kAlignment, 1) * kAlignment;
  Memory memory(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, size)));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory.get(), 0, size);
  return memory;
}

// io_mutex_, and the promise that marks made meanwhile are sent.
class Session::IoLock {
 public:
  explicit IoLock(Session* session) : session_(session) { session_->io_mutex_.lock(); }
  ~IoLock() {
    session_->io_mutex_.unlock();
    if (session_->marked_.exchange(false)) session_->SendMarks();
  }
  IoLock(const IoLock&) = delete;
  IoLock& operator=(const IoLock&) = delete;

 private:
  Session* const session_;
};

Session::Session(std::unique_ptr<Channel> channel, std::unique_ptr<SegmentMap> segment,
                 Opened opened)
    : inline_(segment == nullptr),
      channel_(std::move(channel)),
      segment_(std::move(segment)),
      layout_(std::move(opened), inline_, channel_->socket()),
      lent_(layout_.facts().slot_count),
      marks_(std::make_unique<std::atomic<bool>[]>(layout_.facts().slot_count)) {
  released_.reserve(layout_.facts().slot_count);
}

Session::~Session() = default;

void Session::Unref() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

Status Session::Fail(Status status) {
  if (failed_.ok()) failed_ = std::move(status);
  return failed_;
}

Status Session::BrokenRule(const std::string& what) {
  channel_->Cancel();
  return Fail(Error(LOADERD_INTERNAL, "the daemon at " + Printable(channel_->socket()) +
                                          " broke the session's rules: " + what));
}

Status Session::Usable() {
  if (closed_) return Error(LOADERD_CANCELLED, "the session is closed");
  return failed_;
}

Status Session::StartEpoch(uint64_t epoch, uint64_t first_batch, bool goes_on) {
  const std::lock_guard call(call_mutex_);
  const IoLock io(this);
  Status status = Usable();
  if (!status.ok()) return status;
  DropPending();
  ++start_;
  state_ = State::kRunning;
  next_indices_ = first_batch;
  QueueReleases();
  channel_->Send(EncodeStartEpoch(epoch, first_batch, start_, goes_on));
  channel_->Send(EncodeWant(1));
  channel_->Write();
  return Ok();
}

Status Session::SendIndices(uint64_t batch, std::span<const int64_t> indices) {
  const std::lock_guard call(call_mutex_);
  const IoLock io(this);
  return QueueIndices(batch, indices, indices.empty());
}

Status Session::EndIndices() {
  const std::lock_guard call(call_mutex_);
  const IoLock io(this);
  return QueueIndices(next_indices_, {}, true);
}

Status Session::QueueIndices(uint64_t batch, std::span<const int64_t> indices, bool end) {
  Status status = Usable();
  if (!status.ok()) return status;
  if (state_ == State::kNew) {
    return Error(LOADERD_FAILED_PRECONDITION, "start an epoch before sending its indices");
  }
  if (channel_->unsent() > kMaxUnsent) {
    return Error(LOADERD_RESOURCE_EXHAUSTED,
                 "the daemon has not taken " + std::to_string(channel_->unsent()) +
                     " bytes of indices yet; take batches before sending more");
  }
  if (end) {
    channel_->Send(EncodeIndices(start_, batch, {}, false, true));
  }
  for (size_t at = 0; at < indices.size(); at += kIndicesInMessage) {
    const size_t size = std::min(kIndicesInMessage, indices.size() - at);
    const bool last = at + size == indices.size();
    channel_->Send(EncodeIndices(start_, batch, indices.subspan(at, size), last, false));
  }
  next_indices_ = batch + 1;
  channel_->Write();
  return Ok();
}

Status Session::Next(int64_t timeout_ms, const loaderd_batch** batch) {
  const std::lock_guard call(call_mutex_);
  const auto begin = Clock::now();
  const milliseconds timeout(std::min<int64_t>(timeout_ms, 7 * 24 * 3'600'000LL));
  for (;;) {
    struct pollfd entry = {};
    {
      const IoLock io(this);
      Status status = Usable();
      if (!status.ok()) return status;
      if (state_ == State::kNew) {
        return Error(LOADERD_FAILED_PRECONDITION, "start an epoch before asking for its batches");
      }
      QueueReleases();
      std::optional<Status> done = Advance(batch);
      if (!done.has_value()) {
        channel_->Read();
        done = Advance(batch);
      }
      if (!done.has_value() && channel_->Silence() >= kQuiet) channel_->Ping();
      channel_->Write();
      if (done.has_value()) return *done;
      entry = {channel_->fd(), channel_->events(), 0};
    }
    milliseconds wait = kLongestPoll;
    if (timeout_ms >= 0) {
      const auto left = std::chrono::ceil<milliseconds>(begin + timeout - Clock::now());
      if (left <= milliseconds(0)) {
        return Error(LOADERD_DEADLINE_EXCEEDED,
                     "no batch came within " + std::to_string(timeout_ms) + " ms");
      }
      wait = std::min(wait, left);
    }
    if (::poll(&entry, 1, static_cast<int>(wait.count())) < 0 && errno == EINTR) {
      return Error(LOADERD_INTERRUPTED, "interrupted by a signal while waiting for a batch");
    }
  }
}

milliseconds Session::Unanswered() {
  const IoLock io(this);
  return channel_->Unanswered();
}

// A daemon that stops in good order says so in words that do not name it.
Status Session::WhyItEnded() const {
  const Status& outcome = channel_->outcome();
  const std::string name = Printable(channel_->socket());
  if (outcome.ok() || outcome.code == LOADERD_UNAVAILABLE) {
    if (outcome.text.find(name) != std::string::npos) return outcome;
    return Error(LOADERD_UNAVAILABLE, "the daemon at " + name + " ended the session" +
                                          (outcome.text.empty() ? "" : " (" + outcome.text + ")") +
                                          ": it was stopped; start it again and open again");
  }
  return outcome;
}

// What the replies that are here come to for the caller of Next; nothing when more must come.
std::optional<Status> Session::Advance(const loaderd_batch** batch) {
  if (state_ == State::kEnded) return Error(LOADERD_END_OF_EPOCH, "the epoch has ended");
  for (;;) {
    if (pending_.has_value()) {
      std::optional<Status> done = Deliver(batch);
      if (done.has_value()) return done;
    }
    const std::optional<std::string> message = channel_->Take();
    if (!message.has_value()) {
      if (!channel_->ended()) return std::nullopt;
      return Fail(WhyItEnded());
    }
    Reply reply;
    if (!Decode(*message, &reply)) return BrokenRule("a reply is no valid message");
    Status taken;
    if (auto* ref = std::get_if<BatchRef>(&reply)) {
      taken = Take(std::move(*ref));
    } else if (auto* bad = std::get_if<BadSamples>(&reply)) {
      taken = Take(std::move(*bad));
    } else if (const auto* chunk = std::get_if<Chunk>(&reply)) {
      taken = Take(*chunk);
    } else if (const auto* end = std::get_if<EpochEnd>(&reply)) {
      if (pending_.has_value()) return BrokenRule("an epoch's end within an inline batch");
      if (end->start != start_) continue;
      state_ = State::kEnded;
      return Error(LOADERD_END_OF_EPOCH, "the epoch has ended");
    } else if (std::holds_alternative<Opened>(reply)) {
      taken = BrokenRule("the session was opened twice");
    }
    if (!taken.ok()) return taken;
  }
}

Status Session::Take(BadSamples bad) {
  if (bad_.size() + bad.bad.size() > layout_.capacity()) {
    return BrokenRule("more bad samples than a batch has");
  }
  std::move(bad.bad.begin(), bad.bad.end(), std::back_inserter(bad_));
  return Ok();
}

Status Session::Take(BatchRef ref) {
  if (pending_.has_value()) return BrokenRule("a batch within an inline batch");
  std::vector<BadSample> bad = std::exchange(bad_, {});
  if (bad.size() != ref.bad_count) {
    return BrokenRule("a batch with " + std::to_string(ref.bad_count) +
                      " bad samples, of which it named " + std::to_string(bad.size()));
  }
  const uint64_t data_bytes = layout_.BytesOf(ref.count);
  if (ref.count > layout_.capacity()) {
    return BrokenRule("a batch of " + std::to_string(ref.count) + " samples in room for " +
                      std::to_string(layout_.capacity()));
  }
  switch (ref.handling) {
    case Handling::kLend:
    case Handling::kCopy:
      if (inline_ || ref.slot >= lent_.size()) {
        return BrokenRule("a batch in slot " + std::to_string(ref.slot) + " of " +
                          std::to_string(inline_ ? 0 : lent_.size()));
      }
      if (lent_[ref.slot]) {
        return BrokenRule("a batch in slot " + std::to_string(ref.slot) + ", which is lent");
      }
      lent_[ref.slot] = true;
      break;
    case Handling::kInline:
      if (ref.inline_bytes > layout_.facts().slot_bytes || ref.inline_bytes < data_bytes) {
        return BrokenRule("an inline batch of " + std::to_string(ref.inline_bytes) +
                          " bytes, where " + std::to_string(data_bytes) + " to " +
                          std::to_string(layout_.facts().slot_bytes) + " can be");
      }
      break;
    case Handling::kNone: break;
    default:
      return BrokenRule("a batch with handling " +
                        std::to_string(static_cast<int32_t>(ref.handling)));
  }
  pending_ = Pending{std::move(ref), std::move(bad), 0, nullptr};
  if (pending_->ref.start != start_) {
    DropPending();
  } else if (pending_->ref.handling == Handling::kInline) {
    pending_->memory = AllocateAligned(layout_.BytesOf(layout_.capacity()));
  }
  return Ok();
}

// Chunks may carry a slot's padding behind the last field; only what the layout covers is kept.
Status Session::Take(const Chunk& chunk) {
  if (!pending_.has_value() || pending_->ref.handling != Handling::kInline ||
      chunk.data.size() > pending_->ref.inline_bytes - pending_->chunk_bytes) {
    return BrokenRule("a chunk that belongs to no batch");
  }
  const uint64_t room = layout_.BytesOf(layout_.capacity());
  if (pending_->memory != nullptr && pending_->chunk_bytes < room) {
    std::memcpy(pending_->memory.get() + pending_->chunk_bytes, chunk.data.data(),
                std::min<uint64_t>(chunk.data.size(), room - pending_->chunk_bytes));
  }
  pending_->chunk_bytes += chunk.data.size();
  return Ok();
}

// Hands the pending batch to the caller, and asks for the following one so that it is here when it
// is wanted.
std::optional<Status> Session::Deliver(const loaderd_batch** batch) {
  const BatchRef& ref = pending_->ref;
  if (ref.handling == Handling::kInline) {
    if (pending_->chunk_bytes < ref.inline_bytes) return std::nullopt;
    if (ref.start != start_) {
      pending_.reset();
      return std::nullopt;
    }
    if (pending_->memory == nullptr) {
      return Fail(
          Error(LOADERD_RESOURCE_EXHAUSTED,
                "no memory for an inline batch of " + std::to_string(ref.inline_bytes) + " bytes"));
    }
  }
  if (ref.handling == Handling::kNone) {
    Status error = Error(ref.storage_gone ? LOADERD_STORAGE_GONE : LOADERD_DATA_LOSS,
                         std::move(pending_->ref.error));
    if (error.text.empty()) error.text = "batch " + std::to_string(ref.step) + " has no data";
    pending_.reset();
    channel_->Send(EncodeWant(1));
    return error;
  }
  std::unique_ptr<Batch> made = MakeBatch();
  if (made->session != nullptr) made->session->Ref();
  if (ref.handling == Handling::kCopy) {
    Mark(ref.slot);
    QueueReleases();
  }
  pending_.reset();
  channel_->Send(EncodeWant(1));
  *batch = made.release();
  return Ok();
}

std::unique_ptr<Batch> Session::MakeBatch() {
  const BatchRef& ref = pending_->ref;
  auto made = std::make_unique<Batch>();
  made->epoch = ref.epoch;
  made->step = ref.step;
  made->count = ref.count;
  made->bad_samples = pending_->bad;
  for (const BadSample& bad : made->bad_samples) {
    made->bad_list.push_back({bad.index, bad.reason.c_str(), bad.substitute});
  }
  made->bad_count = static_cast<uint32_t>(made->bad_list.size());
  made->bad = made->bad_list.data();
  if (ref.handling == Handling::kInline) {
    made->memory = std::move(pending_->memory);
  } else {
    uint8_t* const slot = segment_->data() + ref.slot * layout_.facts().slot_bytes;
    if (ref.handling == Handling::kLend) {
      made->data = slot;
      made->slot = ref.slot;
      made->session = this;
    } else {
      made->memory = AllocateAligned(layout_.BytesOf(layout_.capacity()));
      std::memcpy(made->memory.get(), slot, layout_.BytesOf(ref.count));
    }
  }
  made->copied = made->memory != nullptr ? 1 : 0;
  if (made->copied != 0) made->data = made->memory.get();
  return made;
}

// Of another start: its slot goes back; inline bytes that are still to come pass by unseen.
void Session::DropPending() {
  if (!pending_.has_value()) return;
  const Handling handling = pending_->ref.handling;
  pending_->memory.reset();
  if (handling == Handling::kInline) return;
  if (handling != Handling::kNone) Mark(pending_->ref.slot);
  pending_.reset();
}

void Session::Mark(uint32_t slot) {
  marks_[slot].store(true, std::memory_order_relaxed);
  marked_.exchange(true);
}

void Session::QueueReleases() {
  if (!marked_.exchange(false)) return;
  released_.clear();
  for (uint32_t slot = 0; slot < lent_.size(); ++slot) {
    if (marks_[slot].exchange(false, std::memory_order_relaxed)) {
      lent_[slot] = false;
      released_.push_back(slot);
    }
  }
  if (!released_.empty() && !closed_) channel_->Send(EncodeRelease(released_));
}

// The exchanges on marked_ order this: either we get the lock, or its holder, who looks at marked_
// after letting go, sees our mark.
void Session::SendMarks() {
  do {
    marked_.exchange(true);
    if (!io_mutex_.try_lock()) return;
    try {
      QueueReleases();
      channel_->Write();
    } catch (const std::bad_alloc&) {
      (void)Fail(Error(LOADERD_RESOURCE_EXHAUSTED, "no memory to give a batch back"));
    }
    io_mutex_.unlock();
  } while (marked_.exchange(false));
}

void Session::Release(const Batch* batch) {
  if (batch->generation != ForkGeneration()) return;
  const std::unique_ptr<const Batch> owned(batch);
  Session* const session = owned->session;
  if (session == nullptr) return;
  session->Mark(owned->slot);
  session->SendMarks();
  session->Unref();
}

void Session::Abandon() {
  closed_ = true;
  {
    const IoLock io(this);
    channel_->Disconnect();
  }
  Unref();
}

void Session::Close() {
  if (!closed_.exchange(true)) {
    const IoLock io(this);
    try {
      channel_->Cancel();
      channel_->Write();
    } catch (const std::bad_alloc&) {
      (void)Fail(Error(LOADERD_RESOURCE_EXHAUSTED, "no memory to close the session"));
    }
  }
  Unref();
}

}  // namespace loaderd::client
