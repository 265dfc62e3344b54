// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/wire.h"

#include <algorithm>
#include <string>

#include "loaderd/version.h"

namespace loaderd::rpc {
namespace {

constexpr size_t kMaxErrorBytes = 4096;
constexpr size_t kBadSamplesBytes = 64 << 10;
constexpr size_t kMaxReasonBytes = 8 << 10;

std::string Cut(std::string text, size_t bytes) {
  if (text.size() <= bytes) return text;
  // Not inside a UTF-8 sequence: protobuf strings must stay well-formed.
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  text.resize(bytes);
  return text + "...";
}

v1::Handling ToHandling(engine::Handling handling) {
  switch (handling) {
    case engine::Handling::kLend: return v1::HANDLING_LEND;
    case engine::Handling::kCopy: return v1::HANDLING_COPY;
    case engine::Handling::kInline: return v1::HANDLING_INLINE;
    case engine::Handling::kNone: return v1::HANDLING_NONE;
  }
  return v1::HANDLING_UNSPECIFIED;
}

}  // namespace

const std::vector<std::string>& Features() {
  static const std::vector<std::string> features = {
      "image_folder",        "jpeg",           "mapped",         "inline", "order.sequential",
      "order.torch_shuffle", "order.explicit", "batch_transform"};
  return features;
}

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      Cut(Printable(MessageOf(status)), kMaxErrorBytes));
}

v1::Opened ToOpened(const engine::Session& session, bool inline_delivery) {
  v1::Opened opened;
  opened.set_session(session.name());
  const BatchLayout& layout = session.layout();
  for (const FieldLayout& field : layout.fields) {
    v1::Field* out = opened.add_field();
    out->set_name(field.name);
    out->set_dtype(std::string(DTypeName(field.dtype)));
    uint64_t stride = field.RowBytes();
    for (size_t i = 0; i < field.shape.size(); ++i) {
      out->add_shape(field.shape[i]);
      if (i > 0) stride /= static_cast<uint64_t>(std::max<int64_t>(field.shape[i], 1));
      out->add_stride_bytes(static_cast<int64_t>(stride));
    }
    out->set_offset(field.offset);
  }
  opened.set_slot_bytes(layout.slot_bytes);
  opened.set_slot_count(session.slot_count());
  opened.set_segment_bytes(inline_delivery ? 0 : layout.slot_bytes * session.slot_count());
  opened.set_num_samples(session.num_samples());
  opened.set_num_batches(session.num_batches());
  opened.set_epoch_samples(session.epoch_samples());
  opened.set_job_fingerprint(session.job_fingerprint());
  for (const std::string& feature : Features()) opened.add_features(feature);
  opened.set_daemon(LOADERD_VERSION);
  constexpr uint32_t kSlotsOfAPlainLoop =
      4;  // last one held, this one, the one taken ahead, one to fill
  opened.set_plain_loop_copies(session.slot_count() < kSlotsOfAPlainLoop);
  return opened;
}

std::vector<v1::SessionResponse> ToResponses(const engine::Delivery& delivery,
                                             uint64_t inline_bytes) {
  std::vector<v1::SessionResponse> out;
  if (delivery.epoch_end) {
    v1::EpochEnd* end = out.emplace_back().mutable_epoch_end();
    end->set_start(delivery.start);
    end->set_epoch(delivery.epoch);
    end->set_num_batches(delivery.num_batches);
    return out;
  }
  size_t bytes = kBadSamplesBytes;
  for (const engine::BadSample& bad : delivery.bad) {
    if (bytes >= kBadSamplesBytes) {
      out.emplace_back();
      bytes = 0;
    }
    v1::BadSample* sample = out.back().mutable_bad_samples()->add_bad();
    sample->set_index(bad.index);
    sample->set_reason(Cut(bad.reason, kMaxReasonBytes));
    sample->set_substitute(bad.substitute);
    bytes += sample->reason().size() + 32;
  }
  v1::BatchRef* batch = out.emplace_back().mutable_batch();
  batch->set_start(delivery.start);
  batch->set_epoch(delivery.epoch);
  batch->set_step(delivery.step);
  batch->set_slot(delivery.slot);
  batch->set_count(delivery.count);
  batch->set_handling(ToHandling(delivery.handling));
  batch->set_bad_count(static_cast<uint32_t>(delivery.bad.size()));
  batch->set_error(Cut(delivery.error, kMaxReasonBytes));
  batch->set_storage_gone(delivery.storage_gone);
  if (delivery.handling == engine::Handling::kInline) batch->set_inline_bytes(inline_bytes);
  return out;
}

v1::SessionState ToState(const engine::SessionFacts& facts) {
  v1::SessionState state;
  state.set_session(facts.name);
  state.set_uid(facts.owner.uid);
  state.set_pid(facts.owner.pid);
  state.set_client(facts.owner.client);
  state.set_dataset(facts.dataset);
  state.set_epoch(facts.epoch);
  state.set_next_batch(facts.next_batch);
  state.set_num_batches(facts.num_batches);
  state.set_batch_size(facts.batch_size);
  state.set_slots(facts.slots);
  state.set_slots_free(facts.slots_free);
  state.set_slots_filling(facts.slots_filling);
  state.set_slots_ready(facts.slots_ready);
  state.set_slots_lent(facts.slots_lent);
  state.set_slot_bytes(facts.slot_bytes);
  state.set_batches_delivered(facts.batches_delivered);
  state.set_batches_copied(facts.batches_copied);
  state.set_samples_delivered(facts.samples_delivered);
  state.set_bad_samples(facts.bad_samples);
  state.set_delivery(facts.delivery);
  state.set_age_s(facts.age_s);
  state.set_cpu_s(facts.cpu_s);
  state.set_state(facts.closed ? "closed, still mapped" : "open");
  return state;
}

v1::DatasetState ToState(const dataset::Catalog::Entry& entry) {
  v1::DatasetState state;
  state.set_path(entry.dataset->path());
  state.set_kind(std::string(entry.dataset->kind()));
  state.set_num_samples(entry.dataset->size());
  state.set_num_classes(entry.dataset->class_names().size());
  state.set_index_bytes(entry.dataset->index_bytes());
  state.set_sessions(entry.users);
  state.set_index_s(entry.dataset->index_seconds());
  state.set_order_fingerprint(entry.dataset->order_fingerprint());
  state.set_name(entry.name);
  const dataset::StorageCounts storage = entry.dataset->storage();
  state.set_storage_retries(storage.retries);
  state.set_storage_failures(storage.failures);
  return state;
}

v1::BudgetUse ToUse(const Budget& budget) {
  v1::BudgetUse use;
  use.set_name(budget.options().name);
  use.set_used(budget.used());
  use.set_total(budget.options().total);
  use.set_config_field(budget.options().config_field);
  return use;
}

}  // namespace loaderd::rpc
