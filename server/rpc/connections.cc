// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connections.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace loaderd::rpc {
namespace {

constexpr std::chrono::seconds kSweepEvery(1);
constexpr std::chrono::minutes kSilentLogEvery(1);

bool HungUp(int fd) {
  pollfd state = {.fd = fd, .events = 0, .revents = 0};
  return poll(&state, 1, 0) == 1 && (state.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace

struct Connections::Record {
  Record(boost::asio::io_context& io, int watched) : watch(io, watched) {}

  Peer peer;
  int grpc_descriptor = -1;                     // a number only: gRPC owns it
  boost::asio::posix::stream_descriptor watch;  // the duplicate
  std::chrono::steady_clock::time_point accepted;
  bool began_call = false;
  Grant grant;
  std::vector<std::unique_ptr<engine::SegmentLease>> leases;
};

Connections::Connections(boost::asio::io_context& io, Options options)
    : io_(io), options_(std::move(options)), sweep_(io) {
  Sweep();
}

Connections::~Connections() { EndAll(); }

StatusOr<int> Connections::Add(UniqueFd fd, Peer peer, Grant grant) {
  const int duplicate = fcntl(fd.get(), F_DUPFD_CLOEXEC, 0);
  if (duplicate < 0) return ErrnoStatus(errno, "duplicate a connection's descriptor");
  auto record = std::make_unique<Record>(io_, duplicate);
  const int descriptor = fd.release();
  uint64_t id;
  {
    MutexLock lock(mutex_);
    id = ++last_id_;
    record->peer = peer;
    record->peer.connection = id;
    record->grpc_descriptor = descriptor;
    record->accepted = std::chrono::steady_clock::now();
    record->grant = std::move(grant);
    by_descriptor_[descriptor] = id;
    records_[id] = std::move(record);
  }
  Watch(id);
  options_.on_change();
  return descriptor;
}

void Connections::Watch(uint64_t connection) {
  MutexLock lock(mutex_);
  const auto it = records_.find(connection);
  if (it == records_.end()) return;
  // Asio completes an error wait on EPOLLHUP and EPOLLERR.
  it->second->watch.async_wait(
      boost::asio::posix::stream_descriptor::wait_error,
      [this, connection, alive = lifetime_.token()](const boost::system::error_code& error) {
        if (error == boost::asio::error::operation_aborted || alive.expired()) return;
        bool hung_up = true;
        {
          MutexLock lock(mutex_);
          const auto it = records_.find(connection);
          if (it == records_.end()) return;
          hung_up = HungUp(it->second->watch.native_handle());
        }
        if (hung_up) {
          Remove(connection);
        } else {
          Watch(connection);
        }
      });
}

void Connections::Remove(uint64_t connection) {
  std::unique_ptr<Record> record;
  {
    MutexLock lock(mutex_);
    const auto it = records_.find(connection);
    if (it == records_.end()) return;
    record = std::move(it->second);
    records_.erase(it);
    const auto number = by_descriptor_.find(record->grpc_descriptor);
    if (number != by_descriptor_.end() && number->second == connection) {
      by_descriptor_.erase(number);
    }
  }
  record.reset();  // outside the lock: leases give memory back to the machine
  options_.on_change();
}

void Connections::EndAll() {
  sweep_.cancel();
  absl::flat_hash_map<uint64_t, std::unique_ptr<Record>> records;
  {
    MutexLock lock(mutex_);
    records.swap(records_);
    by_descriptor_.clear();
  }
  for (const auto& [id, record] : records) shutdown(record->watch.native_handle(), SHUT_RDWR);
}

std::optional<Peer> Connections::BeginCall(std::string_view grpc_peer) {
  constexpr std::string_view kPrefix = "fd:";
  if (!grpc_peer.starts_with(kPrefix)) return std::nullopt;
  grpc_peer.remove_prefix(kPrefix.size());
  int descriptor = -1;
  const char* const end = grpc_peer.data() + grpc_peer.size();
  const auto parsed = std::from_chars(grpc_peer.data(), end, descriptor);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  MutexLock lock(mutex_);
  const auto number = by_descriptor_.find(descriptor);
  if (number == by_descriptor_.end()) return std::nullopt;
  Record& record = *records_.at(number->second);
  record.began_call = true;
  return record.peer;
}

void Connections::Keep(uint64_t connection, std::unique_ptr<engine::SegmentLease> lease) {
  MutexLock lock(mutex_);
  const auto it = records_.find(connection);
  if (it != records_.end()) it->second->leases.push_back(std::move(lease));
}

void Connections::Refused(uint64_t connection) {
  MutexLock lock(mutex_);
  const auto it = records_.find(connection);
  if (it == records_.end()) return;
  it->second->began_call = false;
  it->second->accepted = std::chrono::steady_clock::now();
}

void Connections::End(uint64_t connection) {
  MutexLock lock(mutex_);
  const auto it = records_.find(connection);
  if (it != records_.end()) shutdown(it->second->watch.native_handle(), SHUT_RDWR);
}

size_t Connections::size() const {
  MutexLock lock(mutex_);
  return records_.size();
}

void Connections::Sweep() {
  const auto now = std::chrono::steady_clock::now();
  {
    MutexLock lock(mutex_);
    for (const auto& [id, record] : records_) {
      if (record->began_call || now - record->accepted < options_.silence_limit) continue;
      shutdown(record->watch.native_handle(), SHUT_RDWR);  // the watch sees it and removes it
      ++silent_ended_;
    }
  }
  if (silent_ended_ > 0 && now - silent_logged_ >= kSilentLogEvery) {
    LogWarning(absl::StrCat("ended peers that began no call in time count=", silent_ended_,
                            " limit_ms=", options_.silence_limit.count()));
    silent_ended_ = 0;
    silent_logged_ = now;
  }
  sweep_.expires_after(kSweepEvery);
  sweep_.async_wait([this, alive = lifetime_.token()](const boost::system::error_code& error) {
    if (!error && !alive.expired()) Sweep();
  });
}

}  // namespace loaderd::rpc
