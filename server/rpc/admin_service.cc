// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <map>
#include <optional>
#include <utility>  // before Asio: Boost 1.74 misses it under GCC 12

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/server_context.h"
#include "loaderd/v1/admin.grpc.pb.h"
#include "server/base/descriptors.h"
#include "server/rpc/list_reactor.h"
#include "server/rpc/process.h"
#include "server/rpc/services.h"
#include "server/rpc/wire.h"

namespace loaderd::rpc {
namespace {

constexpr int kListed = 256;  // entries in one response

// The daemon may leave as soon as it is told to drain, so that it is told when the answer has gone.
class DrainReactor : public grpc::ServerUnaryReactor {
 public:
  explicit DrainReactor(const Server::Options& options) : options_(options) {}
  void FinishAndDrain() {
    drain_ = true;
    Finish(grpc::Status::OK);
  }

 private:
  void OnDone() override {
    if (drain_) boost::asio::post(*options_.io, options_.on_drain);
    delete this;
  }
  const Server::Options& options_;
  bool drain_ = false;
};

class AdminService final : public v1::Admin::CallbackService {
 public:
  AdminService(Front& front, const Server::Options& options)
      : front_(front), options_(options), started_(std::chrono::steady_clock::now()) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest*,
                                      v1::GetStatusResponse* response) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    // The server's call to itself has no connection: its peer is "unknown" to gRPC 1.51. A client's
    // is always "fd:N".
    const bool itself = !absl::StartsWith(context->peer(), "fd:");
    const StatusOr<Peer> peer = itself ? Peer{.uid = front_.own_uid} : Admitted(*context);
    if (peer.ok()) FillStatus(*response);
    reactor->Finish(ToGrpc(peer.status()));
    return reactor;
  }

  grpc::ServerWriteReactor<v1::ListSessionsResponse>* ListSessions(
      grpc::CallbackServerContext* context, const v1::ListSessionsRequest*) override {
    std::vector<v1::ListSessionsResponse> responses;
    const StatusOr<Peer> peer = Admitted(*context);
    if (peer.ok()) {
      for (const engine::SessionFacts& facts : front_.engine.ListSessions()) {
        if (!MayAdminister(*peer) && facts.owner.uid != peer->uid) continue;
        if (responses.empty() || responses.back().session_size() >= kListed) {
          responses.emplace_back();
        }
        *responses.back().add_session() = ToState(facts);
      }
    }
    return new ListReactor<v1::ListSessionsResponse>(std::move(responses), ToGrpc(peer.status()));
  }

  // Datasets that a stranger reads are not shown: their paths are his.
  grpc::ServerWriteReactor<v1::ListDatasetsResponse>* ListDatasets(
      grpc::CallbackServerContext* context, const v1::ListDatasetsRequest*) override {
    std::vector<v1::ListDatasetsResponse> responses;
    const StatusOr<Peer> peer = Admitted(*context);
    if (peer.ok()) {
      std::vector<std::string> own;
      for (const engine::SessionFacts& facts : front_.engine.ListSessions()) {
        if (facts.owner.uid == peer->uid) own.push_back(facts.dataset);
      }
      for (const dataset::Catalog::Entry& entry : front_.catalog.List()) {
        const bool reads = std::find(own.begin(), own.end(), entry.dataset->path()) != own.end();
        if (!MayAdminister(*peer) && !reads && entry.name.empty()) continue;
        if (responses.empty() || responses.back().dataset_size() >= kListed) {
          responses.emplace_back();
        }
        *responses.back().add_dataset() = ToState(entry);
      }
    }
    return new ListReactor<v1::ListDatasetsResponse>(std::move(responses), ToGrpc(peer.status()));
  }

  grpc::ServerWriteReactor<v1::ListDescriptorsResponse>* ListDescriptors(
      grpc::CallbackServerContext* context, const v1::ListDescriptorsRequest*) override {
    std::vector<v1::ListDescriptorsResponse> responses(1);
    const StatusOr<Peer> peer = Admitted(*context);
    if (peer.ok()) {
      if (const Status listed = ListOwn(MayAdminister(*peer), responses); !listed.ok()) {
        return new ListReactor<v1::ListDescriptorsResponse>({}, ToGrpc(listed));
      }
      for (const engine::SessionFacts& facts : front_.engine.ListSessions()) {
        if (facts.delivery != "mapped" || (!MayAdminister(*peer) && facts.owner.uid != peer->uid)) {
          continue;
        }
        if (responses.back().group_size() >= kListed) responses.emplace_back();
        v1::DescriptorGroup* group = responses.back().add_group();
        group->set_kind("segments");
        group->set_open(1);
        group->set_session(facts.name);
      }
    }
    return new ListReactor<v1::ListDescriptorsResponse>(std::move(responses),
                                                        ToGrpc(peer.status()));
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest*,
                                  v1::DrainResponse* response) override {
    auto* const reactor = new DrainReactor(options_);
    const StatusOr<Peer> peer = Admitted(*context);
    if (!peer.ok()) {
      reactor->Finish(ToGrpc(peer.status()));
    } else if (!MayAdminister(*peer)) {
      reactor->Finish(ToGrpc(absl::PermissionDeniedError(
          absl::StrCat("drain: only root and the daemon's own user (uid ", front_.own_uid,
                       ") may; you are uid ", peer->uid))));
    } else {
      front_.draining = true;
      response->set_sessions_left(static_cast<uint32_t>(front_.calls.size()));
      reactor->FinishAndDrain();
    }
    return reactor;
  }

 private:
  StatusOr<Peer> Admitted(const grpc::CallbackServerContext& context) {
    const std::optional<Peer> peer = front_.connections.BeginCall(context.peer());
    if (!peer.has_value()) return absl::UnauthenticatedError("the peer hung up");
    const Status admitted = front_.Admit(peer->uid);
    if (admitted.ok()) return *peer;
    front_.connections.Refused(peer->connection);
    return admitted;
  }

  bool MayAdminister(const Peer& peer) const { return peer.uid == 0 || peer.uid == front_.own_uid; }

  // Paths are those that other users read: `with_targets` is for who may see them.
  Status ListOwn(bool with_targets, std::vector<v1::ListDescriptorsResponse>& responses) const {
    ASSIGN_OR_RETURN(const std::vector<OpenDescriptor> open, loaderd::ListDescriptors("self"));
    ASSIGN_OR_RETURN(const ResourceLimit limit, ReadLimit("self", "Max open files"));
    responses[0].set_pid(getpid());
    responses[0].set_soft_limit(limit.soft);
    responses[0].set_hard_limit(limit.hard);
    std::map<std::string, uint64_t> kinds;
    std::map<std::pair<std::string, std::string>, uint64_t> targets;
    for (const OpenDescriptor& descriptor : open) {
      ++kinds[descriptor.kind];
      if (with_targets) ++targets[{descriptor.kind, descriptor.target}];
    }
    for (const auto& [kind, count] : kinds) {
      v1::DescriptorGroup* group = responses[0].add_group();
      group->set_kind(kind);
      group->set_open(count);
      group->set_detail(DescriptorPurpose(kind));
    }
    for (const auto& [what, count] : targets) {
      if (responses.back().target_size() >= kListed) responses.emplace_back();
      v1::DescriptorTarget* target = responses.back().add_target();
      target->set_kind(what.first);
      target->set_target(Printable(what.second));
      target->set_open(count);
    }
    return absl::OkStatus();
  }

  void FillStatus(v1::GetStatusResponse& status) const {
    const Server::Facts& facts = options_.facts;
    const ProcessFacts process = ReadProcessFacts();
    const engine::EngineCounters counters = front_.engine.counters();
    status.set_version(facts.version);
    status.set_pid(process.pid);
    status.set_uid(front_.own_uid);
    status.set_mode(front_.user_mode ? "user" : "system");
    status.set_state(front_.draining ? "draining" : "serving");
    status.set_socket(facts.socket);
    status.set_segment_socket(facts.segment_socket);
    status.set_uptime_s(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count());
    status.set_fleet_threads(facts.fleet_threads);
    status.set_reader_threads(facts.reader_threads);
    status.set_fleet_reason(facts.fleet_reason);
    status.set_mount_namespace(facts.mount_namespace);
    for (const Budget* budget : options_.budgets) *status.add_budget() = ToUse(*budget);
    status.set_descriptor_soft_limit(facts.descriptor_soft_limit);
    status.set_descriptor_hard_limit(facts.descriptor_hard_limit);
    status.set_descriptors_open(process.descriptors);
    status.set_threads(process.threads);
    status.set_samples_delivered(counters.samples_delivered);
    status.set_batches_delivered(counters.batches_delivered);
    status.set_bad_samples(counters.bad_samples);
    status.set_cpu_s(process.cpu_s);
    status.set_connections(front_.connections.size());
    status.set_sessions(front_.calls.size());
    status.set_resident_bytes(process.resident_bytes);
    v1::Needs& needs = *status.mutable_needs();
    needs.set_descriptors(facts.needs.descriptors);
    needs.set_arithmetic(facts.needs.arithmetic);
    needs.set_threads(facts.needs.threads);
    needs.set_slot_bytes(facts.needs.slot_bytes);
    for (const std::string& line : facts.needs.lowered) needs.add_lowered(line);
  }

  Front& front_;
  const Server::Options& options_;
  const std::chrono::steady_clock::time_point started_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(Front& front, const Server::Options& options) {
  return std::make_unique<AdminService>(front, options);
}

}  // namespace loaderd::rpc
