// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/fake_daemon.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "client/cpp/src/unix_socket.h"

namespace loaderd::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

template <typename Numbers>
std::string Joined(const Numbers& numbers) {
  std::string out;
  for (const auto number : numbers) out += (out.empty() ? "" : ",") + std::to_string(number);
  return out;
}

std::string LineOf(const said::Request& request) {
  switch (request.kind) {
    case said::kOpen: return "open";
    case said::kStartEpoch:
      return "start " + std::to_string(request.start) + " epoch " + std::to_string(request.epoch) +
             " from " + std::to_string(request.first_batch) + (request.goes_on ? " goes on" : "");
    case said::kWant: return "want " + std::to_string(request.count);
    case said::kRelease: return "release " + Joined(request.slots);
    case said::kIndices:
      return "indices " + std::to_string(request.start) + "/" + std::to_string(request.batch) +
             (request.indices.size() > 10 ? " many" : " " + Joined(request.indices)) +
             (request.last ? " last" : "") + (request.end ? " end" : "");
    default: return "nonsense";
  }
}

}  // namespace

FakeDaemon::FakeDaemon(const std::string& socket, Options options)
    : socket_(socket), options_(std::move(options)) {
  const said::OpenedSpec& opened = options_.opened;
  segment_ = ::memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const int64_t size = options_.segment_size >= 0 ? options_.segment_size
                                                  : static_cast<int64_t>(opened.segment_bytes);
  EXPECT_EQ(::ftruncate(segment_, size), 0);
  memory_size_ = static_cast<size_t>(size);
  if (size > 0) {
    memory_ = static_cast<uint8_t*>(::mmap(nullptr, static_cast<size_t>(size),
                                           PROT_READ | PROT_WRITE, MAP_SHARED, segment_, 0));
  }
  const int seals =
      options_.seals >= 0 ? options_.seals : F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_EQ(::fcntl(segment_, F_ADD_SEALS, seals), 0);
  segment_listener_ = ListenAt(SegmentSocketPath(socket));
  segment_thread_ = std::thread([this] { ServeSegments(); });
  peer_ = std::make_unique<Http2Peer>(
      socket, [this](PeerConnection& peer) { Serve(peer); }, options_.http2);
}

FakeDaemon::~FakeDaemon() {
  stop_ = true;
  peer_.reset();
  ::shutdown(segment_listener_, SHUT_RDWR);
  segment_thread_.join();
  ::close(segment_listener_);
  ::unlink(SegmentSocketPath(socket_).c_str());
  if (memory_ != nullptr) ::munmap(memory_, memory_size_);
  ::close(segment_);
}

void FakeDaemon::ServeSegments() {
  for (;;) {
    const int fd = ::accept4(segment_listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    char token[16] = {};
    const ssize_t got = ::recv(fd, token, sizeof token, MSG_WAITALL);
    EXPECT_EQ(std::string(token, sizeof token), options_.opened.token);
    EXPECT_EQ(got, 16);
    if (options_.segment_silent) {
      while (!stop_) ::usleep(1000);
    } else if (!options_.refusal.empty()) {
      const std::string reply = "\1" + options_.refusal;
      // In pieces, as a stream may come.
      for (const char c : reply) ::send(fd, &c, 1, MSG_NOSIGNAL);
    } else {
      char zero = 0;
      struct iovec part = {&zero, 1};
      const size_t count = 1 + static_cast<size_t>(options_.extra_descriptors);
      std::vector<int> fds(count, segment_);
      std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
      struct msghdr message = {};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      struct cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(count * sizeof(int));
      std::memcpy(CMSG_DATA(header), fds.data(), count * sizeof(int));
      ::sendmsg(fd, &message, MSG_NOSIGNAL);
    }
    ::close(fd);
  }
}

void FakeDaemon::Note(const said::Request& request) {
  const std::lock_guard lock(mutex_);
  if (request.kind == said::kOpen) last_open_ = request;
  heard_.push_back(LineOf(request));
  changed_.notify_all();
}

void FakeDaemon::Serve(PeerConnection& peer) {
  ++live_;
  Place place;
  while (const std::optional<std::string> message = peer.Request()) {
    const said::Request request = said::Understand(*message);
    Note(request);
    if (request.kind == said::kOpen) {
      if (options_.on_open && options_.on_open(peer, request)) break;
      place.inline_delivery = request.delivery == 2;
      place.free_slots.clear();
      for (uint32_t slot = 0; slot < options_.opened.slot_count; ++slot)
        place.free_slots.push_back(slot);
      said::OpenedSpec opened = options_.opened;
      if (place.inline_delivery) opened.token.clear();
      peer.Reply(said::Opened(opened));
    } else if (request.kind == said::kStartEpoch) {
      place.start = request.start;
      place.epoch = request.epoch;
      place.step = request.first_batch;
    } else if (request.kind == said::kRelease) {
      place.free_slots.insert(place.free_slots.end(), request.slots.begin(), request.slots.end());
    } else if (request.kind == said::kWant) {
      if (options_.hold_batches) peer.Serve([this] { return let_go_.load(); });
      if (!options_.deliver || !options_.deliver(*this, peer, place.start, place.step)) {
        DeliverNext(peer, place);
      }
      ++place.step;
    }
  }
  peer.WaitForEnd();
  --live_;
  changed_.notify_all();
}

void FakeDaemon::DeliverNext(PeerConnection& peer, Place& place) {
  const uint64_t start = place.start;
  const uint64_t epoch = place.epoch;
  const uint64_t step = place.step;
  const auto byte = static_cast<char>(step + 1);
  if (step >= options_.opened.num_batches) {
    peer.Reply(said::EpochEnd(start, epoch));
  } else if (place.inline_delivery) {
    const uint64_t size = options_.opened.slot_bytes;
    peer.Reply(said::Batch({.start = start,
                            .epoch = epoch,
                            .step = step,
                            .handling = said::kInline,
                            .inline_bytes = size}));
    for (uint64_t at = 0; at < size; at += 1000) {
      peer.Reply(said::Chunk(std::string(std::min<uint64_t>(1000, size - at), byte)));
    }
  } else {
    ASSERT_FALSE(place.free_slots.empty()) << "a batch was asked for with every slot held";
    const uint32_t number = place.free_slots.front();
    place.free_slots.erase(place.free_slots.begin());
    std::memset(slot(number), byte, options_.opened.slot_bytes);
    peer.Reply(said::Batch({.start = start,
                            .epoch = epoch,
                            .step = step,
                            .slot = number,
                            .handling = place.free_slots.empty() ? said::kCopy : said::kLend}));
  }
}

std::vector<std::string> FakeDaemon::Heard() {
  const std::lock_guard lock(mutex_);
  return heard_;
}

said::Request FakeDaemon::last_open() {
  const std::lock_guard lock(mutex_);
  return last_open_;
}

bool FakeDaemon::Within(milliseconds time, const std::function<bool()>& holds) {
  const auto deadline = steady_clock::now() + time;
  std::unique_lock lock(mutex_);
  while (!holds()) {
    if (steady_clock::now() > deadline) return false;
    changed_.wait_for(lock, milliseconds(5));
  }
  return true;
}

bool FakeDaemon::HeardWithin(const std::string& line, milliseconds time) {
  return Within(time,
                [&] { return std::find(heard_.begin(), heard_.end(), line) != heard_.end(); });
}

bool FakeDaemon::EndsWithin(milliseconds time) {
  return Within(time, [&] { return live_ == 0; });
}

}  // namespace loaderd::client
