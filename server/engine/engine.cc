// SPDX-License-Identifier: Apache-2.0
#include "server/engine/engine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/mutex.h"
#include "server/engine/backer.h"
#include "server/engine/batch_layout.h"
#include "server/engine/fleet.h"
#include "server/engine/rooms.h"
#include "server/engine/session.h"
#include "server/engine/session_core.h"
#include "server/plan/epoch_plan.h"

namespace loaderd::engine {
namespace {

constexpr uint64_t kSlotsBesidePrefetch = 3;
constexpr uint32_t kRunsEach = 4;  // of one batch, for each decoder

StatusOr<Grant> Take(Budget* budget, uint32_t uid, uint64_t amount) {
  if (budget == nullptr) return Grant();
  return budget->Take(uid, amount);
}

// Sets `slots` to what there is room for.
StatusOr<Grant> TakeSlots(Budget* budget, uint32_t uid, const BatchLayout& layout,
                          uint32_t& slots) {
  if (budget == nullptr) return Grant();
  StatusOr<Grant> grant =
      budget->TakeUpTo(uid, slots * layout.slot_bytes, layout.slot_bytes, layout.slot_bytes);
  if (!grant.ok()) {
    return WithContext(grant.status(), absl::StrCat("one batch of ", Describe(layout.fields[0]),
                                                    " needs ", layout.slot_bytes, " bytes"));
  }
  slots = static_cast<uint32_t>(grant->amount() / layout.slot_bytes);
  return grant;
}

// Sets `rooms` likewise.
StatusOr<Grant> TakeRooms(Budget* budget, uint32_t uid, const BatchLayout& unmixed,
                          uint32_t& rooms) {
  if (budget == nullptr || rooms == 0) return Grant();
  const uint64_t bytes = unmixed.slot_bytes;
  StatusOr<Grant> grant = budget->TakeUpTo(uid, rooms * bytes, bytes, bytes);
  if (!grant.ok()) {
    return WithContext(grant.status(),
                       absl::StrCat("batch_transform: one batch of ", Describe(unmixed.fields[0]),
                                    " before it is mixed needs ", bytes, " bytes"));
  }
  rooms = static_cast<uint32_t>(grant->amount() / bytes);
  return grant;
}

struct Memory {
  Grant rooms;
  Grant slots;
};
// Of one slot at least, and one room where there are any.
StatusOr<Memory> TakeMemory(Budget* budget, uint32_t uid, SessionCore::Facts& facts) {
  for (;;) {
    Memory memory;
    ASSIGN_OR_RETURN(memory.rooms, TakeRooms(budget, uid, facts.unmixed, facts.rooms));
    StatusOr<Grant> slots = TakeSlots(budget, uid, facts.layout, facts.slots);
    if (slots.ok()) {
      memory.slots = *std::move(slots);
      return memory;
    }
    if (facts.rooms <= 1) return slots.status();
    facts.rooms = 1;  // the others may leave enough for a slot
  }
}

// Labels stay what they are for as long as the dataset is open.
Status CheckLabels(const transform::BatchMix& mix, const dataset::Dataset& dataset) {
  for (uint64_t index = 0; index < dataset.size(); ++index) {
    const int64_t label = dataset.label(index);
    if (label >= 0 && label < mix.num_classes()) continue;
    return absl::InvalidArgumentError(absl::StrCat(mix.classes_path(), ": labels must be 0 to ",
                                                   mix.num_classes() - 1, ", and that of ",
                                                   dataset.Name(index), " is ", label));
  }
  return absl::OkStatus();
}

Status CheckNotEmpty(const plan::Job& job, const dataset::Dataset& dataset) {
  if (job.order.kind != plan::OrderKind::kExplicit) {
    return plan::CheckNotEmpty(job.order, dataset.size(), job.batch_size, job.drop_last);
  }
  if (dataset.size() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("dataset: ", dataset.path(), " has no samples"));
}

class EngineImpl : public Engine {
 public:
  explicit EngineImpl(const Options& options)
      : options_(options),
        fleet_({.decoders = std::max(1, options.fleet_threads),
                .readers = std::max(1, options.reader_threads),
                .buffers = std::max<uint32_t>(1, options.max_reads_in_flight),
                .descriptors = options.descriptors,
                .clock = options.clock}),
        backer_(options.prefaulted_bytes) {}

  StatusOr<std::unique_ptr<Session>> Open(const plan::Job& job,
                                          std::shared_ptr<const dataset::Dataset> dataset,
                                          const Owner& owner, bool inline_delivery,
                                          SessionEvents* events) override {
    RETURN_IF_ERROR(CheckNotEmpty(job, *dataset));
    SessionCore::Facts facts;
    facts.owner = owner;
    facts.job = job;
    facts.fingerprint = job.Fingerprint();
    ASSIGN_OR_RETURN(facts.recipe, transform::Recipe::Compile(job.recipe, options_.transform));
    ASSIGN_OR_RETURN(facts.layout, LayOutBatch(*facts.recipe, job.batch_size));
    facts.slots = static_cast<uint32_t>(job.prefetch_factor + kSlotsBesidePrefetch);
    // A small batch must still have something for each decoder, some times over.
    const auto decoders = static_cast<uint32_t>(std::max(1, options_.fleet_threads));
    facts.run_length = std::max<uint32_t>(1, job.batch_size / (kRunsEach * decoders));
    if (job.batch_transform.has_value()) RETURN_IF_ERROR(SetMix(job, *dataset, facts));
    if (job.order.kind != plan::OrderKind::kExplicit) {
      facts.num_batches =
          plan::EpochPlan::NumBatches(job.order, dataset->size(), job.batch_size, job.drop_last);
      facts.epoch_samples = plan::EpochPlan::NumSamples(job.order, dataset->size());
    }

    ASSIGN_OR_RETURN(Grant session, Take(options_.sessions, owner.uid, 1));
    ASSIGN_OR_RETURN(Grant descriptor, Take(options_.descriptors, owner.uid, 1));
    ASSIGN_OR_RETURN(Memory memory, TakeMemory(options_.slot_bytes, owner.uid, facts));
    ASSIGN_OR_RETURN(Rooms rooms,
                     Rooms::Create(std::move(memory.rooms), facts.rooms, facts.unmixed.slot_bytes));
    ASSIGN_OR_RETURN(shm::Segment segment,
                     shm::Segment::Create(facts.slots * facts.layout.slot_bytes,
                                          facts.layout.slot_bytes, backer_.TakePrefaulted()));

    facts.dataset = std::move(dataset);
    facts.inline_delivery = inline_delivery;
    facts.max_storage_failures = options_.max_storage_failures;
    facts.opened = options_.clock->Now();
    facts.events = events;
    facts.fleet = &fleet_;
    facts.totals = &totals_;
    facts.clock = options_.clock;
    SegmentCharge charge(std::move(memory.slots), std::move(descriptor), std::move(segment),
                         keep_pages_);
    std::shared_ptr<SessionCore> core =
        Register(std::move(facts), std::move(session), std::move(charge), std::move(rooms));
    fleet_.Join(core->constant().id, core);
    backer_.Back(core);
    return std::make_unique<SessionHandle>(std::move(core));
  }

  void KeepPages() override { *keep_pages_ = true; }

  std::vector<SessionFacts> ListSessions() const override {
    std::vector<std::shared_ptr<SessionCore>> cores;
    {
      MutexLock lock(mutex_);
      for (const auto& [id, core] : sessions_) {
        if (auto held = core.lock()) cores.push_back(std::move(held));
      }
    }
    std::vector<SessionFacts> facts;
    for (const auto& core : cores) {
      if (core->listed()) facts.push_back(core->Tell());
    }
    return facts;
  }

  EngineCounters counters() const override {
    return {.samples_delivered = totals_.samples_delivered,
            .batches_delivered = totals_.batches_delivered,
            .bad_samples = totals_.bad_samples};
  }

  bool Responds() const override { return fleet_.Responds(); }

 private:
  Status SetMix(const plan::Job& job, const dataset::Dataset& dataset,
                SessionCore::Facts& facts) const {
    ASSIGN_OR_RETURN(facts.mix,
                     transform::BatchMix::Compile(*job.batch_transform, job.recipe, *facts.recipe));
    RETURN_IF_ERROR(CheckLabels(*facts.mix, dataset));
    facts.unmixed = std::move(facts.layout);
    ASSIGN_OR_RETURN(facts.layout,
                     LayOutBatch(*facts.recipe, job.batch_size, facts.mix->num_classes()));
    facts.rooms = RoomsWanted(options_.max_reads_in_flight, job.batch_size, facts.slots);
    return absl::OkStatus();
  }

  std::shared_ptr<SessionCore> Register(SessionCore::Facts facts, Grant session,
                                        SegmentCharge charge, Rooms rooms) {
    MutexLock lock(mutex_);
    std::erase_if(sessions_, [](const auto& entry) { return entry.second.expired(); });
    facts.id = ++last_id_;
    facts.name = absl::StrCat("s-", facts.id);
    auto core = std::make_shared<SessionCore>(std::move(facts), std::move(session),
                                              std::move(charge), std::move(rooms));
    sessions_.emplace(last_id_, core);
    return core;
  }

  const Options options_;
  Totals totals_;
  const std::shared_ptr<std::atomic<bool>> keep_pages_ = std::make_shared<std::atomic<bool>>(false);
  mutable Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::weak_ptr<SessionCore>> sessions_ ABSL_GUARDED_BY(mutex_);
  Fleet fleet_;    // these last: their threads end first
  Backer backer_;  // wakes the fleet
};

}  // namespace

std::unique_ptr<Engine> Engine::Create(const Options& options) {
  return std::make_unique<EngineImpl>(options);
}

}  // namespace loaderd::engine
