// SPDX-License-Identifier: Apache-2.0
// The daemon's core: sessions, fleet, order, backpressure, delivery rules, bad-sample policy. Knows
// no socket, no proto and no gRPC: its front (rpc/, or a test's fake) implements SessionEvents and
// forwards calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "server/base/budget.h"
#include "server/base/clock.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/dataset/dataset.h"
#include "server/plan/job.h"
#include "server/transform/recipe.h"

namespace loaderd::engine {

struct Owner {
  uint32_t uid = 0;
  int64_t pid = 0;
  std::string client = {};  // free text, printable
};

enum class Handling {
  kLend,    // the client may keep the slot until it releases it
  kCopy,    // the last slot that nobody holds: the client copies it out and releases it at once
  kInline,  // the front sends SlotBytes and then releases the slot
  kNone,    // no data: `error` says why; nothing to release
};

// A stand-in is delivered whole: the "index" and "labels" fields and the augmentation are of the
// index whose data is there, so that the row can be made again; `index` here is the one that was
// planned. When all eight stand-ins fail, the batch fails as by the policy `fail`.
struct BadSample {
  int64_t index = 0;
  std::string reason = {};  // printable, with the sample's name
  int64_t substitute = -1;  // the index whose data stands in, or -1
};

struct Delivery {
  uint64_t start = 0;  // of the Start call it belongs to
  uint64_t epoch = 0;
  bool epoch_end = false;  // the epoch has ended after num_batches batches; nothing else is set
  uint64_t num_batches = 0;
  uint64_t step = 0;
  uint32_t slot = 0;
  uint32_t count = 0;
  Handling handling = Handling::kNone;
  std::vector<BadSample> bad = {};
  std::string error = {};
  bool storage_gone = false;  // `error` is the storage's, not one sample's
};

// A session's front. Calls come from fleet threads or from within the Session's own calls, one at a
// time and in order, with no engine lock held; they must not block. None comes after Close() has
// returned.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  virtual void OnDelivery(Delivery delivery) = 0;
};

// What keeps a session's memory charged: segment, slot bytes and descriptor Grants. The front keeps
// it for as long as the client may map the segment, and then lets go: the pages are punched out
// (unless the daemon leaves: Engine::KeepPages) and the Grants go back (once the last piece in
// flight has ended).
class SegmentLease {
 public:
  virtual ~SegmentLease() = default;
};

struct SessionFacts {
  std::string name;  // "s-17"
  Owner owner;
  std::string dataset;   // printable path
  std::string delivery;  // "mapped" or "inline"
  uint64_t epoch = 0, next_batch = 0, num_batches = 0;
  uint32_t batch_size = 0;
  uint32_t slots = 0, slots_free = 0, slots_filling = 0, slots_ready = 0, slots_lent = 0;
  uint64_t slot_bytes = 0;
  uint64_t batches_delivered = 0, batches_copied = 0, samples_delivered = 0, bad_samples = 0;
  double age_s = 0;
  double cpu_s = 0;     // of decode threads
  bool closed = false;  // ended, but its segment is still mapped
};

// One trainer's life on the daemon. Thread-safe; no call blocks on storage or decoding.
class Session {
 public:
  virtual ~Session() = default;  // closes, and lets the segment go

  virtual const std::string& name() const = 0;
  virtual const BatchLayout& layout() const = 0;
  virtual uint32_t slot_count() const = 0;
  virtual int segment_fd() const = 0;          // valid while the session or its lease lives
  virtual uint64_t num_samples() const = 0;    // of the dataset
  virtual uint64_t num_batches() const = 0;    // of an epoch of this rank; 0 when explicit
  virtual uint64_t epoch_samples() const = 0;  // likewise, padding counted
  virtual const std::string& job_fingerprint() const = 0;

  // Delivery begins anew at (epoch, first_batch); what was planned for another place is dropped,
  // what was planned ahead for this one is used. kInvalidArgument when first_batch > num_batches.
  virtual Status Start(uint64_t epoch, uint64_t first_batch, uint64_t start, bool goes_on) = 0;
  // Leave for `count` more deliveries, ends of epochs included. Start sets it to 0.
  virtual Status Want(uint32_t count) = 0;
  // Slots that the client no longer uses. kInvalidArgument for one that is not lent.
  virtual Status Release(std::span<const uint32_t> slots) = 0;
  // Explicit order: the next indices of batch `batch`, in order; `last` ends the batch, `end` the
  // epoch.
  virtual Status AddIndices(uint64_t start, uint64_t batch, std::span<const int64_t> indices,
                            bool last, bool end) = 0;
  // Bytes of a slot delivered as kInline, until it is released. For inline delivery they stay
  // readable, if worthless, over Close() until the session is destroyed.
  virtual std::span<const uint8_t> SlotBytes(uint32_t slot) const = 0;

  virtual SessionFacts facts() const = 0;

  // Ends the session: when it returns no event comes any more, slots are worth nothing, and pieces
  // in flight end by themselves. Waits for an OnDelivery that runs on another thread; may be called
  // from within one. The lease is null for inline delivery (there the Grants go back when the
  // session is destroyed) and at a second call.
  virtual std::unique_ptr<SegmentLease> Close() = 0;
};

struct EngineCounters {
  uint64_t samples_delivered = 0, batches_delivered = 0, bad_samples = 0;
};

class Engine {
 public:
  struct Options {
    int fleet_threads = 1;
    int reader_threads = 4;
    uint32_t max_reads_in_flight =
        16;  // encoded samples read or waiting to be decoded, over all sessions
    transform::Limits transform = {};
    // When more reads in a row of a session have failed by the storage, its batches that lack a
    // sample fail as by the policy `fail`, until a read succeeds.
    uint32_t max_storage_failures = 100;
    // Null: no limit.
    Budget* sessions = nullptr;    // one a session; budgets outlive the engine
    Budget* slot_bytes = nullptr;  // segments
    // Memory that lies ready for the next session's first batches, beside slot_bytes; 0: none.
    uint64_t prefaulted_bytes = 0;
    // One a segment, one a reader while it reads. A reader that finds none waits, except that one
    // read at a time may go on without (it needs one descriptor of the daemon's reserve): else idle
    // connections could stop all reading.
    Budget* descriptors = nullptr;
    const Clock* clock = &Clock::Real();
  };
  static std::unique_ptr<Engine> Create(const Options& options);
  virtual ~Engine() = default;  // all sessions have been closed; joins the fleet

  // Opens a session on a dataset that the caller opened. Fast: grants are taken, the recipe
  // compiled, the segment made. Refusals: kInvalidArgument with the field's path;
  // kResourceExhausted with limit, asked and left, only where not even one slot fits. `events`
  // outlives the session. slot_count is prefetch_factor + 3, or fewer, down to 1, where the budget
  // has no more.
  virtual StatusOr<std::unique_ptr<Session>> Open(const plan::Job& job,
                                                  std::shared_ptr<const dataset::Dataset> dataset,
                                                  const Owner& owner, bool inline_delivery,
                                                  SessionEvents* events) = 0;

  // The daemon leaves: from now on the pages of ended sessions are not punched out, so that batches
  // which a client still holds stay as they are. They go with its mapping.
  virtual void KeepPages() = 0;

  virtual std::vector<SessionFacts> ListSessions() const = 0;  // also those closed but still leased
  virtual EngineCounters counters() const = 0;
  // True when the scheduler's lock can be had: what the watchdog asks. Blocks while it cannot.
  virtual bool Responds() const = 0;
};

}  // namespace loaderd::engine
