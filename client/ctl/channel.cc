// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/channel.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "loaderd/v1/admin.grpc.pb.h"

namespace loaderd::ctl {
namespace {

constexpr auto kCallLimit = std::chrono::seconds(10);
constexpr char kSystemSocket[] = "/run/loaderd/loaderd.sock";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Folders in /tmp can be made by anybody: one that is not ours is not our daemon's.
bool IsOurFolder(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == getuid();
}

// A connected, non-blocking descriptor, as gRPC wants it, or -errno. Connecting here and not in
// gRPC keeps the kernel's reason.
int ConnectTo(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return -ENAMETOOLONG;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    const int error = errno;
    close(fd);
    return -error;
  }
  return fd;
}

absl::Status ConnectError(const std::string& path, int error) {
  switch (error) {
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(absl::StrCat(
          "socket ", path, ": the path has ", path.size(), " bytes and a Unix socket's at most ",
          sizeof(sockaddr_un::sun_path) - 1, "; use a shorter one"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(absl::StrCat(
          "socket ", path, ": no right to connect; join the socket's group (see ls -l ", path,
          "), or name another daemon's socket with --socket"));
    default:
      return absl::InternalError(
          absl::StrCat("socket ", path, ": connect: ", std::strerror(error)));
  }
}

absl::Status FromGrpc(const grpc::Status& status, const std::string& socket, const char* call) {
  if (status.ok()) return absl::OkStatus();
  const std::string where = absl::StrCat("daemon at ", socket, ": ", call, ": ");
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(
          absl::StrCat(where, "no answer within ", kCallLimit.count(), " s; its log may say why"));
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::UnimplementedError(
          absl::StrCat(where, "this daemon does not offer it: ", status.error_message()));
    case grpc::StatusCode::PERMISSION_DENIED:
      return absl::PermissionDeniedError(
          absl::StrCat(where, "permission denied: ", status.error_message()));
    default:
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          absl::StrCat(where, status.error_message()));
  }
}

void SetLimit(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
}

// Joins a stream of lists into one message.
template <typename Response, typename Reader>
grpc::Status ReadAll(Reader reader, Response& all) {
  Response part;
  while (reader->Read(&part)) all.MergeFrom(part);
  return reader->Finish();
}

}  // namespace

std::vector<std::string> CandidateSockets(const std::string& option) {
  if (!option.empty()) return {option};
  if (std::string named = Environment("LOADERD_SOCKET"); !named.empty()) return {named};
  const std::string system = Environment("LOADERD_SYSTEM_SOCKET");
  std::vector<std::string> sockets = {system.empty() ? kSystemSocket : system};
  const std::string uid = std::to_string(getuid());
  if (std::string runtime = Environment("XDG_RUNTIME_DIR"); !runtime.empty()) {
    sockets.push_back(runtime + "/loaderd/loaderd.sock");
  }
  for (const std::string& folder : {"/run/user/" + uid + "/loaderd", "/tmp/loaderd-" + uid}) {
    const std::string socket = folder + "/loaderd.sock";
    if (IsOurFolder(folder) && socket != sockets.back()) sockets.push_back(socket);
  }
  return sockets;
}

struct AdminChannel::Stub {
  std::unique_ptr<v1::Admin::Stub> admin;
};

AdminChannel::AdminChannel(std::string socket, std::unique_ptr<Stub> stub)
    : socket_(std::move(socket)), stub_(std::move(stub)) {}
AdminChannel::AdminChannel(AdminChannel&&) noexcept = default;
AdminChannel::~AdminChannel() = default;

absl::StatusOr<AdminChannel> AdminChannel::Connect(const std::string& socket_option) {
  std::vector<std::string> tried;
  for (const std::string& path : CandidateSockets(socket_option)) {
    const int fd = ConnectTo(path);
    if (fd >= 0) {
      auto stub = std::make_unique<Stub>();
      stub->admin = v1::Admin::NewStub(grpc::CreateInsecureChannelFromFd("loaderd", fd));
      return AdminChannel(path, std::move(stub));
    }
    if (fd != -ENOENT && fd != -ECONNREFUSED && fd != -ENOTDIR) return ConnectError(path, -fd);
    tried.push_back(absl::StrCat(path, fd == -ECONNREFUSED ? " (nobody listens)" : " (not there)"));
  }
  return absl::UnavailableError(
      absl::StrCat("no daemon at ", absl::StrJoin(tried, ", "),
                   "; start one (systemctl start loaderd, or loaderd --user), or name its socket "
                   "with --socket or LOADERD_SOCKET"));
}

absl::StatusOr<v1::GetStatusResponse> AdminChannel::GetStatus() {
  grpc::ClientContext context;
  SetLimit(context);
  v1::GetStatusResponse response;
  const grpc::Status status = stub_->admin->GetStatus(&context, {}, &response);
  if (!status.ok()) return FromGrpc(status, socket_, "status");
  return response;
}

absl::StatusOr<v1::ListSessionsResponse> AdminChannel::ListSessions() {
  grpc::ClientContext context;
  SetLimit(context);
  v1::ListSessionsResponse all;
  const grpc::Status status = ReadAll(stub_->admin->ListSessions(&context, {}), all);
  if (!status.ok()) return FromGrpc(status, socket_, "sessions");
  return all;
}

absl::StatusOr<v1::ListDatasetsResponse> AdminChannel::ListDatasets() {
  grpc::ClientContext context;
  SetLimit(context);
  v1::ListDatasetsResponse all;
  const grpc::Status status = ReadAll(stub_->admin->ListDatasets(&context, {}), all);
  if (!status.ok()) return FromGrpc(status, socket_, "datasets");
  return all;
}

absl::StatusOr<v1::ListDescriptorsResponse> AdminChannel::ListDescriptors() {
  grpc::ClientContext context;
  SetLimit(context);
  v1::ListDescriptorsResponse all;
  const grpc::Status status = ReadAll(stub_->admin->ListDescriptors(&context, {}), all);
  if (!status.ok()) return FromGrpc(status, socket_, "fds");
  return all;
}

absl::StatusOr<v1::DrainResponse> AdminChannel::Drain() {
  grpc::ClientContext context;
  SetLimit(context);
  v1::DrainResponse response;
  const grpc::Status status = stub_->admin->Drain(&context, {}, &response);
  if (!status.ok()) return FromGrpc(status, socket_, "drain");
  return response;
}

}  // namespace loaderd::ctl
