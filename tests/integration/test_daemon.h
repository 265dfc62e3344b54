// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/channel.h"
#include "loaderd/v1/admin.grpc.pb.h"
#include "loaderd/v1/loader.grpc.pb.h"
#include "server/base/budget.h"
#include "server/rpc/server.h"

namespace loaderd {

// A folder that is removed with all it holds.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Writes `classes` folders "c0", "c1", ... with `each` JPEG files of 64 x 48 pixels.
void MakeImageFolder(const std::string& path, int classes, int each);

// True once `condition` holds; false when it does not within `limit`.
bool Eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds limit = std::chrono::seconds(5));

// A whole daemon in this process, on temporary sockets: real engine, catalog, gRPC and segment
// door.
class TestDaemon {
 public:
  struct Options {
    uint64_t slot_bytes = 64 << 20;
    uint64_t descriptors = 200;
    std::chrono::milliseconds silence_limit = std::chrono::seconds(10);
  };
  TestDaemon() : TestDaemon(Options()) {}
  explicit TestDaemon(Options options);
  ~TestDaemon();

  const std::string& socket() const { return socket_; }
  const std::string& segment_socket() const { return segment_socket_; }
  rpc::Server& server() { return *server_; }
  Budget& slot_bytes() { return slot_bytes_; }
  Budget& sessions() { return sessions_; }
  Budget& descriptors() { return descriptors_; }

  // A connection of its own.
  std::shared_ptr<grpc::Channel> Connect() const;

 private:
  struct Loop;
  TemporaryFolder folder_;
  std::string socket_;
  std::string segment_socket_;
  Budget slot_bytes_;
  Budget sessions_;
  Budget descriptors_;
  std::unique_ptr<dataset::Catalog> catalog_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<rpc::Server> server_;
};

// A session spoken by stock gRPC, in the test's thread.
class GrpcSession {
 public:
  explicit GrpcSession(std::shared_ptr<grpc::Channel> channel);
  ~GrpcSession();

  // Sends; false when the call has ended.
  bool Send(const v1::SessionRequest& request) { return stream_->Write(request); }
  bool Open(const std::string& folder, int batch_size,
            v1::DeliveryWay way = v1::DELIVERY_WAY_MAPPED);
  void StartEpoch(uint64_t epoch, uint32_t want);
  void Release(uint32_t slot);
  // The next response; false at the end of the call.
  bool Receive(v1::SessionResponse& response) { return stream_->Read(&response); }
  // The next response, which must be Opened.
  v1::Opened Opened();
  void HalfClose() { stream_->WritesDone(); }
  // Ends the call and says how.
  grpc::Status Finish();

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Loader::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> stream_;
  bool finished_ = false;
};

}  // namespace loaderd
