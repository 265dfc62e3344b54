// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/http2_peer.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace loaderd::client {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLimit = std::chrono::seconds(20);

PeerConnection* Of(void* user) { return static_cast<PeerConnection*>(user); }

std::vector<nghttp2_nv> Pairs(const HeaderList& headers) {
  std::vector<nghttp2_nv> out;
  for (const auto& [name, value] : headers) {
    out.push_back({reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                   reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(),
                   value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  return out;
}

}  // namespace

PeerConnection::PeerConnection(int fd, const Options& options, const std::atomic<bool>& stop)
    : fd_(fd), options_(options), stop_(stop) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks,
      [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
         const uint8_t* value, size_t value_size, uint8_t, void* user) {
        Of(user)->stream_ = frame->hd.stream_id;
        Of(user)->request_headers_.emplace_back(
            std::string(reinterpret_cast<const char*>(name), name_size),
            std::string(reinterpret_cast<const char*>(value), value_size));
        return 0;
      });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks,
      [](nghttp2_session*, uint8_t, int32_t, const uint8_t* data, size_t size, void* user) {
        Of(user)->request_bytes_.append(reinterpret_cast<const char*>(data), size);
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
        PeerConnection* const self = Of(user);
        const bool acknowledged = (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0;
        if (frame->hd.type == NGHTTP2_DATA) {
          self->largest_frame_ = std::max(self->largest_frame_, frame->hd.length);
        }
        if (frame->hd.type == NGHTTP2_PING && acknowledged) ++self->pings_answered_;
        if (frame->hd.type == NGHTTP2_SETTINGS && acknowledged) ++self->settings_acknowledged_;
        if (frame->hd.type == NGHTTP2_RST_STREAM) self->reset_ = frame->rst_stream.error_code;
        if (frame->hd.stream_id == self->stream_ && self->stream_ > 0 &&
            (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
          self->request_ended_ = true;
        }
        return 0;
      });
  nghttp2_session_callbacks_set_data_source_read_length_callback(
      callbacks, [](nghttp2_session*, uint8_t, int32_t, int32_t session_window,
                    int32_t stream_window, uint32_t frame_size, void* user) {
        return static_cast<ssize_t>(
            std::min({static_cast<size_t>(session_window), static_cast<size_t>(stream_window),
                      static_cast<size_t>(frame_size), Of(user)->options_.reply_frame}));
      });
  nghttp2_option* choices = nullptr;
  nghttp2_option_new(&choices);
  nghttp2_option_set_no_auto_ping_ack(choices, options_.answers_pings ? 0 : 1);
  nghttp2_session_server_new2(&session_, callbacks, this, choices);
  nghttp2_option_del(choices);
  nghttp2_session_callbacks_del(callbacks);
  Settings(options_.settings);
}

PeerConnection::~PeerConnection() {
  nghttp2_session_del(session_);
  Close();
}

std::string PeerConnection::Framed(std::string_view message) {
  const auto size = static_cast<uint32_t>(message.size());
  std::string out = {0, static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                     static_cast<char>(size >> 8), static_cast<char>(size)};
  return out.append(message);
}

std::optional<std::string> PeerConnection::Request() {
  size_t size = 0;
  const auto whole = [&] {
    if (request_bytes_.size() < 5) return false;
    size = 0;
    for (int i = 1; i < 5; ++i) size = size << 8 | static_cast<uint8_t>(request_bytes_[i]);
    return request_bytes_.size() >= 5 + size;
  };
  Serve([&] { return whole() || request_ended_ || reset_.has_value(); });
  if (!whole()) return std::nullopt;
  EXPECT_EQ(request_bytes_[0], 0) << "a compressed request";
  std::string message = request_bytes_.substr(5, size);
  request_bytes_.erase(0, 5 + size);
  return message;
}

ssize_t PeerConnection::ReadBody(nghttp2_session* session, int32_t stream, uint8_t* buffer,
                                 size_t length, uint32_t* flags, nghttp2_data_source*, void* user) {
  PeerConnection* const self = Of(user);
  const size_t size = std::min(length, self->body_.size());
  std::memcpy(buffer, self->body_.data(), size);
  self->body_.erase(0, size);
  if (self->body_.empty() && self->body_ends_) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (self->trailers_.has_value()) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      const std::vector<nghttp2_nv> pairs = Pairs(*self->trailers_);
      nghttp2_submit_trailer(session, stream, pairs.data(), pairs.size());
    }
  } else if (size == 0) {
    return NGHTTP2_ERR_DEFERRED;
  }
  return static_cast<ssize_t>(size);
}

void PeerConnection::Headers(const HeaderList& headers, bool end_stream) {
  Serve([this] { return stream_ > 0; });
  headers_sent_ = true;
  const std::vector<nghttp2_nv> pairs = Pairs(headers);
  nghttp2_submit_headers(session_, end_stream ? NGHTTP2_FLAG_END_STREAM : NGHTTP2_FLAG_NONE,
                         stream_, nullptr, pairs.data(), pairs.size(), nullptr);
  WriteOut();
}

void PeerConnection::StartBody() {
  if (!headers_sent_) Headers(kGrpcHeaders);
  if (body_open_) {
    nghttp2_session_resume_data(session_, stream_);
    return;
  }
  body_open_ = true;
  nghttp2_data_provider provider = {};
  provider.read_callback = &ReadBody;
  nghttp2_submit_data(session_, NGHTTP2_FLAG_END_STREAM, stream_, &provider);
}

void PeerConnection::Reply(std::string_view message) { Data(Framed(message)); }

void PeerConnection::Data(std::string_view bytes) {
  body_.append(bytes);
  StartBody();
  WriteOut();
}

void PeerConnection::EndWithoutTrailers() {
  body_ends_ = true;
  StartBody();
  Flush();
}

void PeerConnection::Trailers(const HeaderList& trailers) {
  trailers_ = trailers;
  body_ends_ = true;
  StartBody();
  Flush();
}

void PeerConnection::Finish(const std::string& grpc_status, const std::string& grpc_message) {
  HeaderList trailers = {{"grpc-status", grpc_status}};
  if (!grpc_message.empty()) trailers.emplace_back("grpc-message", grpc_message);
  Trailers(trailers);
}

void PeerConnection::Reset(uint32_t error_code) {
  Serve([this] { return stream_ > 0; });
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream_, error_code);
  WriteOut();
}

void PeerConnection::Goaway(int32_t last_stream, uint32_t error_code, std::string_view debug) {
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, last_stream, error_code,
                        reinterpret_cast<const uint8_t*>(debug.data()), debug.size());
  WriteOut();
}

void PeerConnection::Settings(const std::vector<nghttp2_settings_entry>& settings) {
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  WriteOut();
}

void PeerConnection::Ping() {
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
  WriteOut();
}

void PeerConnection::Raw(std::string_view bytes) {
  wire_.append(bytes);
  WriteOut();
}

void PeerConnection::Close() {
  if (!closed_) ::close(fd_);
  closed_ = true;
  gone_ = true;
}

void PeerConnection::WriteOut() {
  if (gone_) return;
  const uint8_t* data = nullptr;
  for (ssize_t size; !options_.mute && (size = nghttp2_session_mem_send(session_, &data)) > 0;) {
    wire_.append(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
  }
  while (!wire_.empty()) {
    const ssize_t sent = ::send(fd_, wire_.data(), wire_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return;
    wire_.erase(0, static_cast<size_t>(sent));
  }
}

bool PeerConnection::ReadIn() {
  uint8_t buffer[16384];
  const ssize_t size = ::recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (size <= 0) return false;
  return nghttp2_session_mem_recv(session_, buffer, static_cast<size_t>(size)) >= 0;
}

bool PeerConnection::Serve(const std::function<bool()>& done) {
  const auto deadline = Clock::now() + kLimit;
  while (!done()) {
    if (gone_ || stop_) return false;
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "the peer waited in vain for 20 s";
      return false;
    }
    WriteOut();
    struct pollfd entry = {fd_, static_cast<short>(POLLIN | (wire_.empty() ? 0 : POLLOUT)), 0};
    ::poll(&entry, 1, 10);
    if ((entry.revents & ~POLLOUT) != 0 && !ReadIn()) gone_ = true;
  }
  WriteOut();
  return true;
}

void PeerConnection::Flush() {
  Serve([this] {
    return body_.empty() && wire_.empty() && nghttp2_session_want_write(session_) == 0;
  });
}

bool PeerConnection::WaitForEnd() {
  Serve([this] { return gone_; });
  return gone_;
}

int ListenAt(const std::string& path) {
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof address.sun_path - 1));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::bind(fd, reinterpret_cast<const struct sockaddr*>(&address), sizeof address), 0)
      << path << ": " << std::strerror(errno);
  EXPECT_EQ(::listen(fd, 16), 0);
  return fd;
}

Http2Peer::Http2Peer(std::string socket, Script script, PeerConnection::Options options)
    : socket_(std::move(socket)), script_(std::move(script)), options_(std::move(options)) {
  listener_ = ListenAt(socket_);
  accepting_ = std::thread([this] { Accept(); });
}

Http2Peer::~Http2Peer() {
  stop_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  accepting_.join();
  for (std::thread& thread : threads_) thread.join();
  ::close(listener_);
  ::unlink(socket_.c_str());
}

void Http2Peer::Accept() {
  for (;;) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    ++connections_;
    threads_.emplace_back([this, fd] {
      PeerConnection connection(fd, options_, stop_);
      script_(connection);
      if (!connection.gone()) connection.Flush();
    });
  }
}

}  // namespace loaderd::client
