// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpc/support/log.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_posix.h"
#include "loaderd/v1/admin.grpc.pb.h"
#include "server/base/log.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/connections.h"
#include "server/rpc/front.h"
#include "server/rpc/opener.h"
#include "server/rpc/segment_door.h"
#include "server/rpc/services.h"
#include "server/rpc/session_call.h"

namespace loaderd::rpc {
namespace {

constexpr std::chrono::milliseconds kFarewell(500);
constexpr std::chrono::milliseconds kFarewellStep(5);
constexpr int kOpenerThreads = 4;
constexpr int kCallsPerConnection = 16;  // HTTP/2 streams at once
// gRPC's own default, said. gRPC 1.51 takes a longer request in, piece by piece, before it refuses
// it. Its ResourceQuota would bound that, but then it ends whatever call it comes upon: of 300
// sessions beside one such request, all 300.
constexpr int kMaxRequestBytes = 4 << 20;
constexpr uint64_t kDescriptorsPerConnection = 2;
constexpr uint64_t kDescriptorsPerVisitor =
    2;  // the connection, and the segment's duplicate while it is sent

// gRPC's own lines: what a peer sends wrong is not worth more than debug.
void LogOfGrpc(gpr_log_func_args* args) {
  LogDebug(absl::StrCat("grpc: ", Printable(args->message)));
}

class GrpcServer final : public Server {
 public:
  explicit GrpcServer(Options options)
      : options_(std::move(options)),
        connections_(*options_.io,
                     {.silence_limit = options_.silence_limit, .on_change = [this] { Changed(); }}),
        door_(*options_.io, options_.silence_limit, [this] { Changed(); }),
        opener_(kOpenerThreads),
        front_{.engine = *options_.engine,
               .catalog = *options_.catalog,
               .connections = connections_,
               .door = door_,
               .opener = opener_,
               .calls = calls_,
               .user_mode = options_.user_mode,
               .own_uid = geteuid()},
        loader_(MakeLoaderService(front_)),
        admin_(MakeAdminService(front_, options_)),
        acceptor_(
            *options_.io, std::move(options_.listener), *options_.descriptors,
            kDescriptorsPerConnection,
            [this] {
              return options_.max_connections != 0 &&
                     connections_.size() >= options_.max_connections;
            },
            [this](UniqueFd fd, Peer peer, Grant grant) {
              Connected(std::move(fd), peer, std::move(grant));
            }),
        segment_acceptor_(
            *options_.io, std::move(options_.segment_listener), *options_.descriptors,
            kDescriptorsPerVisitor, [] { return false; },
            [this](UniqueFd fd, Peer peer, Grant grant) {
              door_.Serve(std::move(fd), peer, std::move(grant));
            }) {}

  Status Begin() {
    gpr_set_log_function(&LogOfGrpc);
    grpc::ServerBuilder builder;
    builder.RegisterService(loader_.get());
    builder.RegisterService(admin_.get());
    builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnection);
    // gRPC answers each ping that it takes for one too many with a GOAWAY, which a peer that never
    // reads lets pile up: 250 bytes for its 17. A ping's own answer costs 8.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC could not start its server");
    itself_ = v1::Admin::NewStub(server_->InProcessChannel(grpc::ChannelArguments()));
    acceptor_.Start();
    segment_acceptor_.Start();
    return absl::OkStatus();
  }

  void Drain() override { front_.draining = true; }

  uint32_t sessions() const override { return static_cast<uint32_t>(calls_.size()); }

  bool Shutdown(std::chrono::steady_clock::time_point deadline) override {
    front_.draining = true;
    acceptor_.Stop();
    segment_acceptor_.Stop();
    options_.engine->KeepPages();  // not the clients hang up from here on, but this daemon
    calls_.FinishAll();
    const auto left = std::max(deadline - std::chrono::steady_clock::now(),
                               std::chrono::steady_clock::duration::zero());
    itself_.reset();
    // A trainer that computes does not read, and so would not answer gRPC's goodbye: once its calls
    // have had the time to say why they end, its connection is ended from here.
    const auto told =
        std::chrono::steady_clock::now() + std::min<std::chrono::nanoseconds>(left / 4, kFarewell);
    while (calls_.size() != 0 && std::chrono::steady_clock::now() < told) {
      std::this_thread::sleep_for(kFarewellStep);
    }
    connections_.EndAll();
    // gRPC cancels what still runs at its deadline and then waits for it without a limit: a call
    // that is stuck in storage would hold us for ever, so it waits on a thread of its own.
    std::promise<void> ended;
    std::future<void> end = ended.get_future();
    std::thread waiter([this, left, ended = std::move(ended)]() mutable {
      server_->Shutdown(std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(left / 2));
      ended.set_value();
    });
    const bool in_time = end.wait_for(left) == std::future_status::ready;
    if (in_time) {
      waiter.join();
    } else {
      waiter.detach();  // the caller leaves the process
    }
    return in_time;
  }

  bool AnswersItself(std::chrono::milliseconds limit) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    v1::GetStatusResponse response;
    return itself_->GetStatus(&context, {}, &response).ok();
  }

 private:
  void Connected(UniqueFd fd, Peer peer, Grant grant) {
    const StatusOr<int> descriptor = connections_.Add(std::move(fd), peer, std::move(grant));
    if (!descriptor.ok()) {
      LogWarning(absl::StrCat("connection refused uid=", peer.uid,
                              " reason=", MessageOf(descriptor.status())));
      return;
    }
    grpc::AddInsecureChannelFromFd(server_.get(), *descriptor);
  }

  void Changed() {
    acceptor_.Retry();
    segment_acceptor_.Retry();
    if (options_.on_connections) options_.on_connections(connections_.size() + door_.size());
  }

  Options options_;
  Connections connections_;
  SegmentDoor door_;
  Calls calls_;
  Opener opener_;
  Front front_;
  std::unique_ptr<grpc::Service> loader_;
  std::unique_ptr<grpc::Service> admin_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Admin::Stub> itself_;
  Acceptor acceptor_;
  Acceptor segment_acceptor_;
};

}  // namespace

StatusOr<std::unique_ptr<Server>> Server::Start(Options options) {
  auto server = std::make_unique<GrpcServer>(std::move(options));
  RETURN_IF_ERROR(server->Begin());
  return server;
}

void Calls::Add(SessionCall* call) {
  MutexLock lock(mutex_);
  calls_.push_back(call);
}

void Calls::Remove(SessionCall* call) {
  MutexLock lock(mutex_);
  std::erase(calls_, call);
}

size_t Calls::size() const {
  MutexLock lock(mutex_);
  return calls_.size();
}

void Calls::FinishAll() {
  MutexLock lock(mutex_);
  for (SessionCall* call : calls_) call->FinishWith(absl::UnavailableError("daemon is stopping"));
}

Status Front::Admit(uint32_t uid) const {
  if (!user_mode || uid == own_uid) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("this is the daemon of uid ", own_uid, " and serves nobody else; you are uid ",
                   uid, ": use the system's daemon or your own (loaderd --user)"));
}

}  // namespace loaderd::rpc
