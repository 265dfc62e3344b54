// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <stop_token>

#include "grpcpp/server_context.h"
#include "loaderd/v1/loader.grpc.pb.h"
#include "server/plan/job.h"
#include "server/rpc/list_reactor.h"
#include "server/rpc/services.h"
#include "server/rpc/session_call.h"
#include "server/rpc/wire.h"

namespace loaderd::rpc {
namespace {

constexpr size_t kNamesBytes = 256 << 10;  // of class names in one response

std::vector<v1::DescribeResponse> Describe(const dataset::Dataset& dataset) {
  std::vector<v1::DescribeResponse> responses(1);
  responses[0].set_num_samples(dataset.size());
  responses[0].set_num_classes(dataset.class_names().size());
  responses[0].set_order_fingerprint(dataset.order_fingerprint());
  for (const dataset::EntryNote& note : dataset.notes()) {
    v1::EntryNote* out = responses[0].add_note();
    out->set_kind(note.kind);
    out->set_count(note.count);
    for (const std::string& path : note.first) out->add_first(path);
    out->set_taken(note.taken);
  }
  size_t bytes = 0;
  for (const std::string& name : dataset.class_names()) {
    if (bytes >= kNamesBytes) {
      responses.emplace_back();
      bytes = 0;
    }
    responses.back().add_class_name(name);
    bytes += name.size();
  }
  return responses;
}

// Opens the dataset on an opener thread, then writes. Deletes itself; the opener's work ends before
// Finish, so never after it.
class DescribeCall final : public grpc::ServerWriteReactor<v1::DescribeResponse> {
 public:
  DescribeCall(Front& front, const v1::DescribeRequest& request) : front_(front) {
    front_.opener.Post([this, request] { Open(request); });
  }

 private:
  void Open(const v1::DescribeRequest& request) {
    const StatusOr<DatasetSpec> spec = request.json().empty()
                                           ? plan::ParseDataset(request.dataset())
                                           : plan::ParseDatasetJson(request.json());
    if (!spec.ok()) return Finish(ToGrpc(spec.status()));
    const auto dataset = front_.catalog.Open(*spec, stop_.get_token(), [](uint64_t) {});
    if (!dataset.ok()) return Finish(ToGrpc(dataset.status()));
    responses_ = Describe(**dataset);
    Next();
  }
  void Next() {
    if (next_ < responses_.size()) {
      StartWrite(&responses_[next_++]);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      Next();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

  Front& front_;
  std::stop_source stop_;
  std::vector<v1::DescribeResponse> responses_;
  size_t next_ = 0;
};

class LoaderService final : public v1::Loader::CallbackService {
 public:
  explicit LoaderService(Front& front) : front_(front) {}

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override {
    return new SessionCall(front_, front_.connections.BeginCall(context->peer()));
  }

  grpc::ServerWriteReactor<v1::DescribeResponse>* Describe(
      grpc::CallbackServerContext* context, const v1::DescribeRequest* request) override {
    const std::optional<Peer> peer = front_.connections.BeginCall(context->peer());
    const Status admitted =
        peer.has_value() ? front_.Admit(peer->uid) : absl::UnauthenticatedError("the peer hung up");
    if (!admitted.ok()) {
      if (peer.has_value()) front_.connections.Refused(peer->connection);
      return new ListReactor<v1::DescribeResponse>({}, ToGrpc(admitted));
    }
    return new DescribeCall(front_, *request);
  }

 private:
  Front& front_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeLoaderService(Front& front) {
  return std::make_unique<LoaderService>(front);
}

}  // namespace loaderd::rpc
