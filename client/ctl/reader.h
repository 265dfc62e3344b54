// SPDX-License-Identifier: Apache-2.0
// Batches through the client library, as a trainer gets them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/include/loaderd/client.h"
#include "loaderd/v1/job.pb.h"

namespace loaderd::ctl {

// A folder's path (with a slash in it, or there as a folder), else a name that the daemon's
// configuration defines.
v1::DatasetSpec DatasetOf(const std::string& data);

// `json`: an array of TransformStep messages, e.g. [{"resize": {"size": [256]}}, {"center_crop":
// {"size": [224]}}].
absl::Status SetTransform(const std::string& json, v1::JobSpec& job);

// One session. Ctrl-C (see interrupt.h) ends every wait with kCancelled.
class Reader {
 public:
  static absl::StatusOr<Reader> Open(const v1::JobSpec& job, const std::string& socket);
  Reader(Reader&& other) noexcept;
  Reader& operator=(Reader&&) = delete;
  ~Reader();

  const loaderd_opened& opened() const { return *loaderd_opened_of(session_); }

  absl::Status StartEpoch(uint64_t epoch, bool goes_on);
  // Explicit order: the epoch is this one batch.
  absl::Status SendOnly(const std::vector<int64_t>& indices);
  // The next batch, to be given to loaderd_release; nullptr at the epoch's end. kDeadlineExceeded
  // when none came in time.
  absl::StatusOr<const loaderd_batch*> Next(int64_t timeout_ms);

 private:
  explicit Reader(loaderd_session* session) : session_(session) {}

  loaderd_session* session_;
};

}  // namespace loaderd::ctl
