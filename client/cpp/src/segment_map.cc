// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/segment_map.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "client/cpp/src/fork_guard.h"
#include "client/cpp/src/text.h"
#include "client/cpp/src/unix_socket.h"

namespace loaderd::client {
namespace {

constexpr size_t kMaxReply = 4096;  // of a refusal's text
constexpr int kMaxSurplus = 16;     // descriptors that a faulty peer may add; all are closed

// One recvmsg. Returns what recvmsg does; the first descriptor that came goes to *received, all
// others are closed.
ssize_t Receive(int socket, char* buffer, size_t size, std::unique_ptr<GuardedFd>* received) {
  struct iovec part = {buffer, size};
  alignas(struct cmsghdr) char control[CMSG_SPACE(kMaxSurplus * sizeof(int))];
  struct msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = -1;
  int error = 0;
  auto guarded = std::make_unique<GuardedFd>([&] {
    int first = -1;
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    error = errno;
    if (got < 0) return first;
    for (struct cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
        if (first < 0) {
          first = fd;
        } else {
          ::close(fd);
        }
      }
    }
    return first;
  });
  if (guarded->ok() && *received == nullptr) *received = std::move(guarded);
  errno = error;
  return got;
}

}  // namespace

Status SegmentMap::Fetch(const std::string& socket, const std::string& token, uint64_t bytes,
                         Patience* patience, std::unique_ptr<SegmentMap>* map) {
  const std::string name = Printable(socket);
  const std::string what = "waiting for the segment from " + name;
  std::unique_ptr<GuardedFd> connection;
  int error = 0;
  Status status = Connect(socket, patience, &connection, &error);
  if (!status.ok()) return status;
  ssize_t sent = -1;
  while ((sent = ::send(connection->get(), token.data(), token.size(),
                        MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 &&
         (errno == EAGAIN || errno == EINTR)) {
    status = patience->Wait(connection->get(), POLLOUT, what);
    if (!status.ok()) return status;
  }
  if (sent != static_cast<ssize_t>(token.size())) {
    return ErrnoError(LOADERD_UNAVAILABLE, "cannot hand the segment's token in on " + name, errno);
  }
  // One byte: 0, with the descriptor, or another one with a text behind it up to the end.
  std::string reply;
  std::unique_ptr<GuardedFd> segment;
  for (;;) {
    char buffer[512];
    const ssize_t got = Receive(connection->get(), buffer, sizeof buffer, &segment);
    if (got == 0) break;
    if (got > 0) {
      reply.append(buffer, static_cast<size_t>(got));
      if (reply[0] == 0 || reply.size() > kMaxReply) break;
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) {
      return ErrnoError(LOADERD_UNAVAILABLE, "no segment from " + name, errno);
    }
    status = patience->Wait(connection->get(), POLLIN, what);
    if (!status.ok()) return status;
  }
  if (reply.empty()) {
    return Error(LOADERD_UNAVAILABLE,
                 "the daemon closed " + name + " without handing the segment over; see its log");
  }
  if (reply[0] != 0) {
    return Error(LOADERD_PERMISSION_DENIED,
                 "the daemon refused the segment on " + name + ": " + Printable(reply.substr(1)));
  }
  if (segment == nullptr) {
    return Error(LOADERD_INTERNAL,
                 "the daemon's answer on " + name +
                     " brought no descriptor (or this process has none left: raise ulimit -n)");
  }
  return Map(segment->get(), bytes, map);
}

Status SegmentMap::Map(int fd, uint64_t bytes, std::unique_ptr<SegmentMap>* map) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Error(LOADERD_INTERNAL,
                 "the daemon's segment is not sealed against shrinking, so it is not mapped");
  }
  struct stat facts;
  if (::fstat(fd, &facts) != 0 || static_cast<uint64_t>(facts.st_size) != bytes) {
    return Error(LOADERD_INTERNAL, "the daemon's segment has " + std::to_string(facts.st_size) +
                                       " bytes, not the announced " + std::to_string(bytes));
  }
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return ErrnoError(LOADERD_RESOURCE_EXHAUSTED,
                      "cannot map the segment of " + std::to_string(bytes) + " bytes", errno);
  }
  map->reset(new SegmentMap(static_cast<uint8_t*>(data), bytes));
  return Ok();
}

SegmentMap::~SegmentMap() { ::munmap(data_, size_); }

}  // namespace loaderd::client
