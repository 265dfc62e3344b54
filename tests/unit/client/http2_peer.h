// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nghttp2/nghttp2.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace loaderd::client {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

inline const HeaderList kGrpcHeaders = {{":status", "200"}, {"content-type", "application/grpc"}};

// The server's end of one HTTP/2 connection, in the hands of a test's script, which runs on the
// peer's thread. What blocks gives up after 20 seconds or when the peer is destroyed.
class PeerConnection {
 public:
  struct Options {
    std::vector<nghttp2_settings_entry> settings = {};  // sent at once
    size_t reply_frame = 16384;                         // most payload of a DATA frame
    bool mute = false;                                  // say nothing but Raw
    bool answers_pings = true;
  };
  PeerConnection(int fd, const Options& options, const std::atomic<bool>& stop);
  ~PeerConnection();
  PeerConnection(const PeerConnection&) = delete;
  PeerConnection& operator=(const PeerConnection&) = delete;

  // The next whole gRPC request; none when the client ended or reset the call, or is gone.
  std::optional<std::string> Request();

  void Headers(const HeaderList& headers, bool end_stream = false);
  void Reply(
      std::string_view message);      // one gRPC message; sends kGrpcHeaders first if nothing was
  void Data(std::string_view bytes);  // as it is
  void EndWithoutTrailers();
  void Trailers(const HeaderList& trailers);
  void Finish(const std::string& grpc_status, const std::string& grpc_message = "");
  void Reset(uint32_t error_code);
  void Goaway(int32_t last_stream, uint32_t error_code, std::string_view debug = "");
  void Settings(const std::vector<nghttp2_settings_entry>& settings);
  void Ping();
  void Raw(std::string_view bytes);  // past HTTP/2
  void Close();

  // Serves the connection until `done`; false at the time limit or when the connection has ended
  // first.
  bool Serve(const std::function<bool()>& done);
  // Sends what is queued as far as windows allow; serves until it is all gone.
  void Flush();
  bool WaitForEnd();  // end of file from the client

  const HeaderList& request_headers() const { return request_headers_; }
  size_t largest_frame() const { return largest_frame_; }  // DATA payload from the client
  int pings_answered() const { return pings_answered_; }
  int settings_acknowledged() const { return settings_acknowledged_; }
  std::optional<uint32_t> reset_by_client() const { return reset_; }
  bool gone() const { return gone_; }
  static std::string Framed(std::string_view message);

 private:
  static ssize_t ReadBody(nghttp2_session*, int32_t, uint8_t*, size_t, uint32_t*,
                          nghttp2_data_source*, void*);
  void StartBody();
  void WriteOut();
  bool ReadIn();

  const int fd_;
  const Options options_;
  const std::atomic<bool>& stop_;
  nghttp2_session* session_ = nullptr;
  int32_t stream_ = -1;
  HeaderList request_headers_;
  std::string request_bytes_;
  bool request_ended_ = false;
  bool headers_sent_ = false;
  bool body_open_ = false;
  std::string body_;
  std::optional<HeaderList> trailers_;
  bool body_ends_ = false;
  std::string wire_;
  size_t largest_frame_ = 0;
  int pings_answered_ = 0;
  int settings_acknowledged_ = 0;
  std::optional<uint32_t> reset_;
  bool gone_ = false;
  bool closed_ = false;
};

// Listens on a Unix socket and runs `script` for each connection, each on a thread of its own.
class Http2Peer {
 public:
  using Script = std::function<void(PeerConnection&)>;
  Http2Peer(std::string socket, Script script, PeerConnection::Options options = {});
  ~Http2Peer();

  const std::string& socket() const { return socket_; }
  int connections() const { return connections_; }

 private:
  void Accept();

  const std::string socket_;
  const Script script_;
  const PeerConnection::Options options_;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  int listener_ = -1;
  std::vector<std::thread> threads_;  // of the accepting thread, until it has ended
  std::thread accepting_;
};

// A listening Unix socket at `path`, which must not exist.
int ListenAt(const std::string& path);

}  // namespace loaderd::client
