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

// Takes every page now: what the kernel refuses (strict overcommit) is then an error at open
// instead of SIGBUS in a decoder. Costs some 0.25 ms a MiB, a third of what the first batches would
// pay otherwise.
int Reserve(int fd, off_t bytes) {
  while (::fallocate(fd, 0, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    return errno == EOPNOTSUPP ? 0 : errno;
  }
  return 0;
}

}  // namespace

StatusOr<Segment> Segment::Create(uint64_t bytes) {
  assert(bytes > 0 && bytes % static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) == 0);
  const off_t size = static_cast<off_t>(bytes);
  if (size < 0) return Refused(EFBIG, "memfd_create", bytes);
  UniqueFd fd(::memfd_create("loaderd", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.ok()) return Refused(errno, "memfd_create", bytes);
  if (::ftruncate(fd.get(), size) != 0) return Refused(errno, "ftruncate", bytes);
  if (const int error = Reserve(fd.get(), size); error != 0)
    return Refused(error, "fallocate", bytes);
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
