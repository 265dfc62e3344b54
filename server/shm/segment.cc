// SPDX-License-Identifier: Apache-2.0
#include "server/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace loaderd::shm {
namespace {

Status Refused(int error, std::string_view call, uint64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      ErrnoStatus(error, absl::StrCat(std::string(call), " for a segment of ", bytes, " bytes"))
          .message(),
      "; the machine or the daemon's control group has no more of it: fewer sessions, smaller "
      "batches or "
      "a lower prefetch_factor need less"));
}

StatusOr<UniqueFd> MakeMemfd(uint64_t bytes) {
  UniqueFd fd(::memfd_create("loaderd", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.ok()) return Refused(errno, "memfd_create", bytes);
  return fd;
}

}  // namespace

// Costs some 0.25 ms a MiB, a third of what the first batches would pay otherwise.
Status Segment::Back(int fd, uint64_t begin, uint64_t bytes) {
  while (::fallocate(fd, 0, static_cast<off_t>(begin), static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP) break;
    return Refused(errno, "fallocate", bytes);
  }
  return absl::OkStatus();
}

StatusOr<UniqueFd> Segment::Prefault(uint64_t bytes) {
  ASSIGN_OR_RETURN(UniqueFd fd, MakeMemfd(bytes));
  RETURN_IF_ERROR(Back(fd.get(), 0, bytes));
  return fd;
}

StatusOr<Segment> Segment::Create(uint64_t bytes, uint64_t backed, UniqueFd prefaulted) {
  assert(bytes > 0 && bytes % static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) == 0);
  assert(backed > 0 && backed <= bytes);
  const off_t size = static_cast<off_t>(bytes);
  if (size < 0) return Refused(EFBIG, "memfd_create", bytes);
  UniqueFd fd = std::move(prefaulted);
  if (!fd.ok()) {
    ASSIGN_OR_RETURN(fd, MakeMemfd(bytes));
  }
  if (::ftruncate(fd.get(), size) != 0) return Refused(errno, "ftruncate", bytes);
  RETURN_IF_ERROR(Back(fd.get(), 0, backed));
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "fcntl(F_ADD_SEALS) on a segment");
  }
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return Refused(errno, "mmap", bytes);
  return Segment(std::move(fd), {static_cast<uint8_t*>(memory), static_cast<size_t>(bytes)});
}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)), bytes_(std::exchange(other.bytes_, {})) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Segment::~Segment() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

void Segment::Punch() {
  // A failure costs memory until the last holder unmaps, nothing else.
  if (fd_.ok()) {
    (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      static_cast<off_t>(bytes_.size()));
  }
}

}  // namespace loaderd::shm
