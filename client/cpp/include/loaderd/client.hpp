// SPDX-License-Identifier: Apache-2.0
// loaderd's client for C++20: owners and exceptions over the C interface (client.h), which says
// what each call does. Header-only, so no C++ type crosses the library's border.
//
//   loaderd::Session session(job_json);
//   session.StartEpoch(0);
//   while (std::optional<loaderd::Batch> batch = session.Next()) Train(batch->Field<uint8_t>(0));
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "loaderd/client.h"

namespace loaderd {

// What a call did not do, with the library's text.
class Error : public std::runtime_error {
 public:
  Error(loaderd_code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  loaderd_code code() const { return code_; }

 private:
  loaderd_code code_;
};

namespace internal {

inline void Check(loaderd_code code) {
  if (code != LOADERD_OK) throw Error(code, loaderd_error());
}

struct Close {
  void operator()(loaderd_session* session) const { loaderd_close(session); }
};
struct Release {
  void operator()(const loaderd_batch* batch) const { loaderd_release(batch); }
};

}  // namespace internal

// One batch, given back by the destructor, on any thread. Its bytes may be changed in place. May
// outlive its Session's object, but not be asked for Field() then: the layout is the session's.
class Batch {
 public:
  uint64_t epoch() const { return batch_->epoch; }
  uint64_t step() const { return batch_->step; }
  uint32_t size() const { return batch_->count; }  // samples
  bool copied() const { return batch_->copied != 0; }
  std::byte* data() const { return static_cast<std::byte*>(batch_->data); }
  std::span<const loaderd_bad_sample> bad() const { return {batch_->bad, batch_->bad_count}; }

  // The valid rows of field number `field`, row-major. Throws std::out_of_range for a field that is
  // not there, and Error (LOADERD_INVALID_ARGUMENT) where rows are no multiple of sizeof(T).
  template <typename T>
  std::span<T> Field(uint32_t field) const {
    if (field >= opened_->num_fields) throw std::out_of_range("no field " + std::to_string(field));
    const loaderd_field& layout = opened_->fields[field];
    const size_t bytes = static_cast<size_t>(layout.stride_bytes[0]) * batch_->count;
    if (static_cast<size_t>(layout.stride_bytes[0]) % sizeof(T) != 0) {
      throw Error(LOADERD_INVALID_ARGUMENT, std::string("field '") + layout.name + "' has dtype " +
                                                layout.dtype +
                                                ", which another type's size does not divide");
    }
    return {reinterpret_cast<T*>(data() + layout.offset), bytes / sizeof(T)};
  }

 private:
  friend class Session;
  Batch(const loaderd_batch* batch, const loaderd_opened* opened)
      : batch_(batch), opened_(opened) {}

  std::unique_ptr<const loaderd_batch, internal::Release> batch_;
  const loaderd_opened* opened_;
};

// A session, closed by the destructor. Thread-safe as the C interface is.
class Session {
 public:
  using Milliseconds = std::chrono::milliseconds;
  static constexpr Milliseconds kForEver{-1};

  static loaderd_open_options Defaults() {
    loaderd_open_options options = {};
    options.struct_size = sizeof options;
    options.timeout_ms = -1;
    options.reconnect_ms = -1;
    return options;
  }

  // `job_json`: the JSON form of loaderd.v1.JobSpec. Throws Error, as all members do.
  explicit Session(const std::string& job_json, const loaderd_open_options& options = Defaults()) {
    loaderd_session* session = nullptr;
    internal::Check(loaderd_open(job_json.c_str(), &options, &session));
    session_.reset(session);
  }

  const loaderd_opened& opened() const { return *loaderd_opened_of(session_.get()); }

  void StartEpoch(uint64_t epoch, uint64_t first_batch = 0, bool goes_on = false) {
    internal::Check(loaderd_start_epoch(session_.get(), epoch, first_batch, goes_on ? 1 : 0));
  }
  void SendIndices(uint64_t batch, std::span<const int64_t> indices) {
    internal::Check(loaderd_send_indices(session_.get(), batch, indices.data(), indices.size()));
  }
  void EndIndices() { internal::Check(loaderd_end_indices(session_.get())); }

  // The next batch; none when the epoch has ended. A signal does not end the waiting. Error
  // (LOADERD_DATA_LOSS) names a bad sample; the next call goes on behind it. Error
  // (LOADERD_DEADLINE_EXCEEDED) after `timeout`.
  std::optional<Batch> Next(Milliseconds timeout = kForEver) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      const loaderd_batch* batch = nullptr;
      const loaderd_code code = loaderd_next(session_.get(), timeout.count(), &batch);
      if (code == LOADERD_END_OF_EPOCH) return std::nullopt;
      if (code != LOADERD_INTERRUPTED) {
        internal::Check(code);
        return Batch(batch, &opened());
      }
      if (timeout < Milliseconds(0)) continue;
      timeout =
          std::max(Milliseconds(0),
                   std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now()));
    }
  }

 private:
  std::unique_ptr<loaderd_session, internal::Close> session_;
};

}  // namespace loaderd
