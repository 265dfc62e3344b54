// SPDX-License-Identifier: Apache-2.0
// loaderctl's way to a daemon's Admin service. Used from one thread; blocks, at most ten seconds a
// call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loaderd/v1/admin.pb.h"

namespace loaderd::ctl {

// The sockets that are tried, in order: `option`, else LOADERD_SOCKET, else the system's and then
// the user's.
std::vector<std::string> CandidateSockets(const std::string& option);

class AdminChannel {
 public:
  // Never starts a daemon. kUnavailable: there is none, with every socket that was tried;
  // kPermissionDenied: there is one, and no right to its socket.
  static absl::StatusOr<AdminChannel> Connect(const std::string& socket_option);
  AdminChannel(AdminChannel&&) noexcept;
  ~AdminChannel();

  const std::string& socket() const { return socket_; }

  absl::StatusOr<v1::GetStatusResponse> GetStatus();
  // The daemon's streams, joined.
  absl::StatusOr<v1::ListSessionsResponse> ListSessions();
  absl::StatusOr<v1::ListDatasetsResponse> ListDatasets();
  absl::StatusOr<v1::ListDescriptorsResponse> ListDescriptors();
  absl::StatusOr<v1::DrainResponse> Drain();

 private:
  struct Stub;
  AdminChannel(std::string socket, std::unique_ptr<Stub> stub);

  std::string socket_;
  std::unique_ptr<Stub> stub_;
};

}  // namespace loaderd::ctl
