// SPDX-License-Identifier: Apache-2.0
// The C interface: checks what comes from outside, and lets no exception out.
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/src/batch.h"
#include "client/cpp/src/fork_guard.h"
#include "client/cpp/src/opener.h"
#include "client/cpp/src/options.h"
#include "client/cpp/src/session.h"
#include "client/cpp/src/status.h"
#include "client/cpp/src/stream.h"

namespace {

using loaderd::client::Batch;
using loaderd::client::Error;
using loaderd::client::Ok;
using loaderd::client::Options;
using loaderd::client::Report;
using loaderd::client::Session;
using loaderd::client::Status;
using loaderd::client::Stream;

struct Description : loaderd_description {
  loaderd::client::DescribeReply reply;
  std::vector<const char*> names;
  std::vector<loaderd_entry_note> entry_notes;
  std::vector<std::vector<const char*>> first_names;
};

template <typename Body>
loaderd_code Guarded(const Body& body) noexcept {
  try {
    return Report(body());
  } catch (const std::bad_alloc&) {
    return Report({LOADERD_RESOURCE_EXHAUSTED, "out of memory"});
  } catch (const std::exception& fault) {
    return Report({LOADERD_INTERNAL, fault.what()});
  }
}

template <typename Body>
loaderd_code OnSession(loaderd_session* session, const Body& body) noexcept {
  return Guarded([&]() -> Status {
    if (session == nullptr) return Error(LOADERD_INVALID_ARGUMENT, "the session is NULL");
    auto* const mine = static_cast<Stream*>(session);
    if (mine->forked()) {
      return Error(LOADERD_FORKED,
                   "this session belongs to the process that this one was forked from; open one of "
                   "its own here, after the fork");
    }
    const Stream::Use use(mine);
    return body(mine);
  });
}

Status Missing(const char* argument) {
  return Error(LOADERD_INVALID_ARGUMENT, std::string(argument) + " is NULL");
}

}  // namespace

extern "C" {

uint32_t loaderd_abi_version(void) { return LOADERD_ABI_VERSION; }

const char* loaderd_error(void) { return loaderd::client::LastError(); }

loaderd_code loaderd_open(const char* job_json, const loaderd_open_options* options,
                          loaderd_session** session) {
  return Guarded([&]() -> Status {
    if (session == nullptr) return Missing("session");
    *session = nullptr;
    if (job_json == nullptr) return Missing("job_json");
    Options parsed;
    Status status = Options::Parse(options, &parsed);
    if (!status.ok()) return status;
    Session* opened = nullptr;
    loaderd::client::Job job{.json = job_json, .options = parsed, .place = {}};
    status = loaderd::client::OpenSession(job_json, parsed, &opened, &job.place);
    if (status.ok()) *session = new Stream(std::move(job), opened);
    return status;
  });
}

const loaderd_opened* loaderd_opened_of(const loaderd_session* session) {
  return session == nullptr ? nullptr : &static_cast<const Stream*>(session)->facts();
}

loaderd_code loaderd_start_epoch(loaderd_session* session, uint64_t epoch, uint64_t first_batch,
                                 int goes_on) {
  return OnSession(
      session, [&](Stream* mine) { return mine->StartEpoch(epoch, first_batch, goes_on != 0); });
}

loaderd_code loaderd_send_indices(loaderd_session* session, uint64_t batch, const int64_t* indices,
                                  size_t count) {
  return OnSession(session, [&](Stream* mine) {
    if (indices == nullptr && count != 0) return Missing("indices");
    return mine->SendIndices(batch, std::span<const int64_t>(indices, count));
  });
}

loaderd_code loaderd_end_indices(loaderd_session* session) {
  return OnSession(session, [](Stream* mine) { return mine->EndIndices(); });
}

loaderd_code loaderd_next(loaderd_session* session, int64_t timeout_ms,
                          const loaderd_batch** batch) {
  return OnSession(session, [&](Stream* mine) {
    if (batch == nullptr) return Missing("batch");
    *batch = nullptr;
    return mine->Next(timeout_ms, batch);
  });
}

void loaderd_release(const loaderd_batch* batch) {
  if (batch != nullptr) Session::Release(static_cast<const Batch*>(batch));
}

void loaderd_close(loaderd_session* session) {
  if (session == nullptr) return;
  auto* const mine = static_cast<Stream*>(session);
  if (!mine->forked()) mine->Close();
}

loaderd_code loaderd_describe(const char* dataset_json, const loaderd_open_options* options,
                              const loaderd_description** description) {
  return Guarded([&]() -> Status {
    if (description == nullptr) return Missing("description");
    *description = nullptr;
    if (dataset_json == nullptr) return Missing("dataset_json");
    Options parsed;
    Status status = Options::Parse(options, &parsed);
    if (!status.ok()) return status;
    auto made = std::make_unique<Description>();
    status = loaderd::client::DescribeDataset(dataset_json, parsed, &made->reply);
    if (!status.ok()) return status;
    for (const std::string& name : made->reply.class_names) made->names.push_back(name.c_str());
    made->num_samples = made->reply.num_samples;
    made->num_classes = made->reply.num_classes;
    made->class_names = made->names.data();
    made->order_fingerprint = made->reply.order_fingerprint.c_str();
    made->first_names.reserve(made->reply.notes.size());
    for (const loaderd::client::EntryNote& note : made->reply.notes) {
      std::vector<const char*>& first = made->first_names.emplace_back();
      for (const std::string& name : note.first) first.push_back(name.c_str());
      made->entry_notes.push_back({.kind = note.kind.c_str(),
                                   .count = note.count,
                                   .first = first.data(),
                                   .num_first = static_cast<uint32_t>(first.size()),
                                   .taken = note.taken ? 1 : 0});
    }
    made->num_notes = static_cast<uint32_t>(made->entry_notes.size());
    made->notes = made->entry_notes.data();
    *description = made.release();
    return Ok();
  });
}

void loaderd_free_description(const loaderd_description* description) {
  delete static_cast<const Description*>(description);
}

}  // extern "C"
