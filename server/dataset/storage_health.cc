// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/storage_health.h"

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace loaderd::dataset {
namespace {

constexpr char kStorageMark[] = "loaderd/storage-fault";

bool IsStorageErrno(int error) {
  switch (error) {
    case EIO:
    case ESTALE:
    case EAGAIN:
    case EINTR:
    case EBUSY:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ETIMEDOUT:
    case EREMOTEIO:
    case ENOLINK:
    case ENOTCONN:
    case ECONNABORTED:
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ENETUNREACH:
    case ESHUTDOWN: return true;
    default: return false;
  }
}

}  // namespace

Status FileStatus(int error, std::string_view operand) {
  Status status = ErrnoStatus(error, operand);
  if (!IsStorageErrno(error)) return status;
  const char* name = ::strerrorname_np(error);
  Status marked(status.code(),
                absl::StrCat(status.message(), " (", name == nullptr ? "?" : name, ")"));
  marked.SetPayload(kStorageMark, absl::Cord());
  return marked;
}

bool IsStorageFault(const Status& status) { return status.GetPayload(kStorageMark).has_value(); }

Status StorageHealth::Read(uint64_t sample, absl::FunctionRef<Status()> once) {
  Status status = once();
  if (!IsStorageFault(status)) {
    Note(sample, false);
    return status;
  }
  const size_t more = TriesAfterTheFirst(sample);
  for (size_t i = 0; i < more; ++i) {
    std::this_thread::sleep_for(options_.pauses[i]);
    ++retries_;
    status = once();
    if (!IsStorageFault(status)) {
      Note(sample, false);
      return status;
    }
  }
  ++failures_;
  Note(sample, true);
  if (more == 0) return status;
  Status told(status.code(), absl::StrCat(status.message(), ", at each of ", more + 1, " tries"));
  told.SetPayload(kStorageMark, absl::Cord());
  return told;
}

size_t StorageHealth::TriesAfterTheFirst(uint64_t sample) const {
  if (failed_in_a_row_ >= options_.gone_after) return 0;
  MutexLock lock(mutex_);
  return failed_.contains(sample) ? 0 : options_.pauses.size();
}

void StorageHealth::Note(uint64_t sample, bool failed) {
  if (!failed) {
    if (failed_in_a_row_ != 0) failed_in_a_row_ = 0;
    if (remembered_ == 0) return;
  } else {
    ++failed_in_a_row_;
  }
  MutexLock lock(mutex_);
  if (!failed) {
    failed_.erase(sample);
  } else if (failed_.size() < options_.remembered) {
    failed_.insert(sample);
  }
  remembered_ = failed_.size();
}

StorageCounts StorageHealth::counts() const { return {.retries = retries_, .failures = failures_}; }

}  // namespace loaderd::dataset
