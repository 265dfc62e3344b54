// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/channel.h"

#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cpp/src/grpc_status.h"
#include "client/cpp/src/text.h"

namespace loaderd::client {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kReadBytes = 64u << 10;
constexpr size_t kWriteBytes = 256u << 10;
constexpr int32_t kStreamWindow = 4 << 20;
constexpr int32_t kConnectionWindow = 8 << 20;
constexpr size_t kPrefix = 5;  // of a gRPC message: a flag and a big-endian length

milliseconds Since(Clock::time_point time) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - time);
}

nghttp2_nv Header(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

class Channel::Impl {
 public:
  Impl(std::unique_ptr<GuardedFd> fd, std::string socket)
      : fd_(std::move(fd)), socket_(std::move(socket)), read_buffer_(kReadBytes) {
    nghttp2_session_callbacks* callbacks = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) throw std::bad_alloc();
    nghttp2_session_callbacks_set_on_header_callback(callbacks, &OnHeader);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, &OnFrame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, &OnData);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, &OnStreamClose);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, &OnFrameNotSent);
    nghttp2_session_callbacks_set_error_callback2(callbacks, &OnError);
    const int made = nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    if (made != 0) throw std::bad_alloc();
    // Generous windows: a batch that comes inline should not wait for our next read.
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, 1u << 20},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 64u << 10},
    };
    if (nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings)) != 0 ||
        nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow) !=
            0) {
      nghttp2_session_del(session_);
      throw std::bad_alloc();
    }
  }

  ~Impl() { nghttp2_session_del(session_); }

  void Begin(const std::string& method) {
    const nghttp2_nv headers[] = {
        Header(":method", "POST"),
        Header(":scheme", "http"),
        Header(":path", method),
        Header(":authority", "localhost"),
        Header("te", "trailers"),
        Header("content-type", "application/grpc"),
        Header("user-agent", "loaderd-client/0.1"),
    };
    nghttp2_data_provider provider = {};
    provider.read_callback = &ReadRequest;
    stream_ =
        nghttp2_submit_request(session_, nullptr, headers, std::size(headers), &provider, nullptr);
    if (stream_ < 0) End(Error(LOADERD_INTERNAL, Text(stream_)));
  }

  void Send(const std::string& message) {
    if (ended_) return;
    const auto size = static_cast<uint32_t>(message.size());
    const char prefix[kPrefix] = {0, static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                                  static_cast<char>(size >> 8), static_cast<char>(size)};
    request_.append(prefix, kPrefix).append(message);
    nghttp2_session_resume_data(session_, stream_);
  }

  void HalfClose() {
    half_closed_ = true;
    nghttp2_session_resume_data(session_, stream_);
  }

  void Cancel() {
    if (stream_ > 0 && !stream_closed_) {
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream_, NGHTTP2_CANCEL);
    }
    End(Error(LOADERD_CANCELLED, "the session was closed"));
  }

  void Ping() {
    if (pinged_ || broken_) return;
    pinged_ = nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr) == 0;
    pinged_at_ = Clock::now();
  }

  void Disconnect() { Break(Error(LOADERD_CANCELLED, "the session was given up")); }

  void Write() {
    while (!broken_ && !write_broken_) {
      while (wire_.size() - wire_sent_ < kWriteBytes) {
        const uint8_t* data = nullptr;
        const ssize_t size = nghttp2_session_mem_send(session_, &data);
        if (size < 0) return Break(Error(CodeOf(size), Text(static_cast<int>(size))));
        if (size == 0) break;
        wire_.append(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
      }
      if (wire_sent_ == wire_.size()) break;
      const ssize_t sent = ::send(fd_->get(), wire_.data() + wire_sent_, wire_.size() - wire_sent_,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        // What the peer said before it went may still be there to read; Read then meets the end.
        write_broken_ = true;
        return;
      }
      wire_sent_ += static_cast<size_t>(sent);
      if (wire_sent_ == wire_.size()) {
        wire_.clear();
        wire_sent_ = 0;
      }
    }
    // nghttp2 has told the peer what it did wrong, or the peer takes its leave.
    if (!broken_ && nghttp2_session_want_read(session_) == 0 &&
        nghttp2_session_want_write(session_) == 0) {
      Break(heard_ ? Closed(last_error_) : Stranger());
    }
  }

  void Read() {
    while (!broken_ && unread_bytes_ <= kMaxMessage) {
      const ssize_t size =
          ::recv(fd_->get(), read_buffer_.data(), read_buffer_.size(), MSG_DONTWAIT);
      if (size == 0) return Break(Closed({}));
      if (size < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        return Break(Closed(ErrnoText(errno)));
      }
      pinged_ = false;
      heard_at_ = Clock::now();
      const ssize_t taken =
          nghttp2_session_mem_recv(session_, read_buffer_.data(), static_cast<size_t>(size));
      if (taken < 0) return Break(Error(CodeOf(taken), Text(static_cast<int>(taken))));
      if (static_cast<size_t>(size) < read_buffer_.size()) return;
    }
  }

  std::optional<std::string> Take() {
    if (replies_.empty()) return std::nullopt;
    std::string reply = std::move(replies_.front());
    replies_.pop_front();
    unread_bytes_ -= reply.size();
    return reply;
  }

  bool ended() const { return ended_ && replies_.empty(); }
  const Status& outcome() const { return outcome_; }
  bool heard() const { return heard_; }
  milliseconds Silence() const { return Since(heard_at_); }
  milliseconds Unanswered() const { return pinged_ ? Since(pinged_at_) : milliseconds(0); }
  size_t unsent() const { return request_.size() - request_sent_ + wire_.size() - wire_sent_; }
  int fd() const { return fd_->get(); }
  short events() const {
    const bool write =
        !write_broken_ && (wire_sent_ < wire_.size() || nghttp2_session_want_write(session_) != 0);
    return static_cast<short>(POLLIN | (write ? POLLOUT : 0));
  }
  const std::string& socket() const { return socket_; }

 private:
  static Impl* Self(void* user) { return static_cast<Impl*>(user); }

  // nghttp2 is C: nothing may be thrown through it.
  template <typename Body>
  static int Guarded(const Body& body) {
    try {
      body();
      return 0;
    } catch (const std::exception&) {
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }

  static int OnHeader(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                      size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
                      void* user) {
    return Guarded([&] {
      Self(user)->TakeHeader(frame->hd.stream_id, {reinterpret_cast<const char*>(name), name_size},
                             {reinterpret_cast<const char*>(value), value_size});
    });
  }
  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    return Guarded([&] { Self(user)->TakeFrame(*frame); });
  }
  static int OnData(nghttp2_session*, uint8_t, int32_t stream, const uint8_t* data, size_t size,
                    void* user) {
    return Guarded([&] {
      Self(user)->TakeData(stream, {reinterpret_cast<const char*>(data), size});
    });
  }
  static int OnStreamClose(nghttp2_session*, int32_t stream, uint32_t error_code, void* user) {
    return Guarded([&] { Self(user)->TakeStreamClose(stream, error_code); });
  }
  static int OnFrameNotSent(nghttp2_session*, const nghttp2_frame* frame, int error, void* user) {
    return Guarded([&] {
      if (frame->hd.type != NGHTTP2_HEADERS) return;
      Self(user)->End(Error(LOADERD_UNAVAILABLE, "the daemon at " + Printable(Self(user)->socket_) +
                                                     " takes no more calls on this connection (" +
                                                     nghttp2_strerror(error) + "); open again"));
    });
  }
  static int OnError(nghttp2_session*, int, const char* text, size_t size, void* user) {
    return Guarded([&] { Self(user)->last_error_.assign(text, size); });
  }
  static ssize_t ReadRequest(nghttp2_session*, int32_t, uint8_t* buffer, size_t length,
                             uint32_t* flags, nghttp2_data_source*, void* user) {
    return Self(user)->GiveRequest(buffer, length, flags);
  }

  ssize_t GiveRequest(uint8_t* buffer, size_t length, uint32_t* flags) {
    const size_t size = std::min(length, request_.size() - request_sent_);
    std::memcpy(buffer, request_.data() + request_sent_, size);
    request_sent_ += size;
    const bool all = request_sent_ == request_.size();
    if (all) {
      request_.clear();
      request_sent_ = 0;
    } else if (request_sent_ > (1u << 20)) {
      request_.erase(0, request_sent_);
      request_sent_ = 0;
    }
    if (all && half_closed_) *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (size == 0 && !half_closed_) return NGHTTP2_ERR_DEFERRED;
    return static_cast<ssize_t>(size);
  }

  void TakeHeader(int32_t stream, std::string_view name, std::string_view value) {
    if (stream != stream_) return;
    if (name == ":status") {
      // nghttp2 has checked that it is three digits.
      http_status_ = (value[0] - '0') * 100 + (value[1] - '0') * 10 + (value[2] - '0');
    } else if (name == "content-type") {
      grpc_content_ = value.starts_with("application/grpc");
    } else if (name == "grpc-status") {
      grpc_status_ = ParseGrpcStatus(value);
    } else if (name == "grpc-message") {
      grpc_message_ = PercentDecode(value);
    }
  }

  void TakeFrame(const nghttp2_frame& frame) {
    heard_ = true;
    if (frame.hd.type == NGHTTP2_GOAWAY && frame.goaway.opaque_data_len > 0) {
      last_error_.assign(reinterpret_cast<const char*>(frame.goaway.opaque_data),
                         frame.goaway.opaque_data_len);
    }
    if (frame.hd.stream_id != stream_ || ended_) return;
    const bool last = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame.hd.type == NGHTTP2_HEADERS && !last && http_status_ >= 200 &&
        (http_status_ != 200 || !grpc_content_)) {
      NoGrpc();
    } else if ((frame.hd.type == NGHTTP2_HEADERS || frame.hd.type == NGHTTP2_DATA) && last) {
      FinishCall();
    }
    if (ended_ && !stream_closed_) {
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream_, NGHTTP2_CANCEL);
    }
  }

  void FinishCall() {
    if (!grpc_status_.has_value()) {
      if (http_status_ != 200 || !grpc_content_) return NoGrpc();
      return End(Error(LOADERD_UNKNOWN, "the daemon at " + Printable(socket_) +
                                            " ended the call without a grpc-status"));
    }
    if (*grpc_status_ == LOADERD_OK && !partial_.empty()) {
      return End(Error(LOADERD_INTERNAL,
                       "the daemon at " + Printable(socket_) + " ended the call within a message"));
    }
    std::string text = grpc_message_;
    if (*grpc_status_ != LOADERD_OK && text.empty()) {
      text = "the daemon at " + Printable(socket_) + " ended the call with gRPC status " +
             std::to_string(*grpc_status_) + " and gave no reason";
    }
    End({*grpc_status_, std::move(text)});
  }

  void NoGrpc() {
    End(Error(CodeOfHttpStatus(http_status_), Printable(socket_) +
                                                  " does not answer as a loaderd (HTTP status " +
                                                  std::to_string(http_status_) + ")"));
  }

  void TakeData(int32_t stream, std::string_view data) {
    if (stream != stream_ || ended_) return;
    while (!data.empty()) {
      if (partial_.size() < kPrefix) {
        const size_t size = std::min(kPrefix - partial_.size(), data.size());
        partial_.append(data.substr(0, size));
        data.remove_prefix(size);
        if (partial_.size() < kPrefix) return;
        if (!TakePrefix()) return;
      }
      const size_t size = std::min(message_size_ - (partial_.size() - kPrefix), data.size());
      partial_.append(data.substr(0, size));
      data.remove_prefix(size);
      if (partial_.size() - kPrefix == message_size_) {
        unread_bytes_ += message_size_;
        replies_.push_back(partial_.substr(kPrefix));
        partial_.clear();
      }
    }
  }

  bool TakePrefix() {
    const auto byte = [&](size_t i) {
      return static_cast<uint32_t>(static_cast<uint8_t>(partial_[i]));
    };
    const uint32_t size = byte(1) << 24 | byte(2) << 16 | byte(3) << 8 | byte(4);
    std::string fault;
    if (byte(0) != 0) {
      fault = "a compressed message, which was not asked for";
    } else if (size > kMaxMessage) {
      fault = "a message of " + std::to_string(size) + " bytes, more than the limit of " +
              std::to_string(kMaxMessage);
    }
    if (!fault.empty()) {
      End(Error(LOADERD_INTERNAL, "the daemon at " + Printable(socket_) + " sent " + fault));
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream_, NGHTTP2_CANCEL);
      return false;
    }
    message_size_ = size;
    partial_.reserve(kPrefix + size);
    return true;
  }

  void TakeStreamClose(int32_t stream, uint32_t error_code) {
    if (stream != stream_) return;
    stream_closed_ = true;
    if (ended_) return;
    std::string text = "the daemon at " + Printable(socket_) + " broke the call off (" +
                       nghttp2_http2_strerror(error_code) + ")";
    if (error_code == NGHTTP2_REFUSED_STREAM) text += "; it is stopping or overloaded: open again";
    if (!last_error_.empty()) text += ": " + Printable(last_error_);
    End(Error(CodeOfReset(error_code), std::move(text)));
  }

  void End(Status outcome) {
    if (ended_) return;
    ended_ = true;
    outcome_ = std::move(outcome);
  }

  void Break(Status why) {
    broken_ = true;
    fd_->Close();
    End(std::move(why));
  }

  Status Closed(const std::string& detail) const {
    return Error(LOADERD_UNAVAILABLE,
                 "the daemon at " + Printable(socket_) + " closed the connection" +
                     (detail.empty() ? "" : " (" + Printable(detail) + ")") +
                     ": it was stopped or died; see its log, start it again and open again");
  }
  Status Stranger() const {
    return Error(LOADERD_UNAVAILABLE,
                 "what listens on " + Printable(socket_) +
                     " does not speak HTTP/2, so it is no loaderd" +
                     (last_error_.empty() ? "" : " (" + Printable(last_error_) + ")"));
  }
  static loaderd_code CodeOf(ssize_t error) {
    const bool memory = error == NGHTTP2_ERR_NOMEM || error == NGHTTP2_ERR_CALLBACK_FAILURE;
    return memory ? LOADERD_RESOURCE_EXHAUSTED : LOADERD_UNAVAILABLE;
  }
  std::string Text(int error) const {
    return "the connection to the daemon at " + Printable(socket_) +
           " failed: " + nghttp2_strerror(error);
  }

  const std::unique_ptr<GuardedFd> fd_;
  const std::string socket_;
  nghttp2_session* session_ = nullptr;
  int32_t stream_ = 0;
  bool stream_closed_ = false;

  std::string request_;  // framed requests that nghttp2 has not taken yet, from request_sent_ on
  size_t request_sent_ = 0;
  bool half_closed_ = false;
  std::string wire_;  // bytes for the socket, from wire_sent_ on
  size_t wire_sent_ = 0;
  bool broken_ = false;
  bool write_broken_ = false;

  std::vector<uint8_t> read_buffer_;
  bool heard_ = false;
  bool pinged_ = false;
  Clock::time_point heard_at_ = Clock::now();
  Clock::time_point pinged_at_;
  int http_status_ = 0;
  bool grpc_content_ = false;
  std::optional<loaderd_code> grpc_status_;
  std::string grpc_message_;
  std::string last_error_;  // nghttp2's, or the debug text of a GOAWAY

  std::string partial_;  // prefix and what has come of the message behind it
  size_t message_size_ = 0;
  std::deque<std::string> replies_;
  size_t unread_bytes_ = 0;
  bool ended_ = false;
  Status outcome_;
};

Channel::Channel(std::unique_ptr<GuardedFd> fd, std::string socket)
    : impl_(std::make_unique<Impl>(std::move(fd), std::move(socket))) {}
Channel::~Channel() = default;
void Channel::Begin(const std::string& method) { impl_->Begin(method); }
void Channel::Send(const std::string& message) { impl_->Send(message); }
void Channel::HalfClose() { impl_->HalfClose(); }
void Channel::Cancel() { impl_->Cancel(); }
void Channel::Ping() { impl_->Ping(); }
void Channel::Disconnect() { impl_->Disconnect(); }
void Channel::Write() { impl_->Write(); }
void Channel::Read() { impl_->Read(); }
std::optional<std::string> Channel::Take() { return impl_->Take(); }
bool Channel::ended() const { return impl_->ended(); }
const Status& Channel::outcome() const { return impl_->outcome(); }
bool Channel::heard() const { return impl_->heard(); }
milliseconds Channel::Silence() const { return impl_->Silence(); }
milliseconds Channel::Unanswered() const { return impl_->Unanswered(); }
size_t Channel::unsent() const { return impl_->unsent(); }
int Channel::fd() const { return impl_->fd(); }
short Channel::events() const { return impl_->events(); }
const std::string& Channel::socket() const { return impl_->socket(); }

}  // namespace loaderd::client
