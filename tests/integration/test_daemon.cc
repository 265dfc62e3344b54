// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/test_daemon.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <thread>
#include <utility>  // before Asio: Boost 1.74 misses it under GCC 12

#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace loaderd {
namespace {

UniqueFd ListenOn(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << path;
  EXPECT_EQ(listen(fd.get(), 128), 0);
  return fd;
}

std::unique_ptr<engine::Engine> MakeEngine(Budget& sessions, Budget& slot_bytes,
                                           Budget& descriptors) {
  engine::Engine::Options options;
  options.fleet_threads = 2;
  options.reader_threads = 4;
  options.sessions = &sessions;
  options.slot_bytes = &slot_bytes;
  options.descriptors = &descriptors;
  return engine::Engine::Create(options);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "loaderd-test-XXXXXX").string();
  path_ = mkdtemp(pattern.data());
}

TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(path_); }

void MakeImageFolder(const std::string& path, int classes, int each) {
  const std::string jpeg = LOADERD_SOURCE_DIR "/tests/support/fixtures/colour_420.jpg";
  for (int c = 0; c < classes; ++c) {
    const std::string folder = path + "/c" + std::to_string(c);
    std::filesystem::create_directories(folder);
    for (int i = 0; i < each; ++i) {
      std::filesystem::copy_file(jpeg, folder + "/" + std::to_string(i) + ".jpg");
    }
  }
}

bool Eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

struct TestDaemon::Loop {
  boost::asio::io_context io;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work =
      boost::asio::make_work_guard(io);
  std::thread thread;

  // Runs `work` on io's thread and waits for it.
  template <typename Work>
  auto Do(Work what) {
    std::packaged_task<std::invoke_result_t<Work>()> task(std::move(what));
    auto result = task.get_future();
    boost::asio::post(io, [&task] { task(); });
    return result.get();
  }
};

TestDaemon::TestDaemon(Options options)
    : socket_(folder_.path() + "/d.sock"),
      segment_socket_(folder_.path() + "/d-segment.sock"),
      slot_bytes_({.name = "slot bytes",
                   .total = options.slot_bytes,
                   .unit = "bytes",
                   .config_field = "limits.slot_bytes"}),
      sessions_(
          {.name = "sessions", .total = 100, .unit = "", .config_field = "limits.max_sessions"}),
      descriptors_({.name = "descriptors",
                    .total = options.descriptors,
                    .unit = "",
                    .config_field = "LimitNOFILE"}),
      catalog_(std::make_unique<dataset::Catalog>(dataset::Catalog::Options())),
      engine_(MakeEngine(sessions_, slot_bytes_, descriptors_)),
      loop_(std::make_unique<Loop>()) {
  loop_->thread = std::thread([this] { loop_->io.run(); });
  rpc::Server::Options server;
  server.io = &loop_->io;
  server.listener = ListenOn(socket_);
  server.segment_listener = ListenOn(segment_socket_);
  server.engine = engine_.get();
  server.catalog = catalog_.get();
  server.descriptors = &descriptors_;
  server.budgets = {&sessions_, &slot_bytes_, &descriptors_};
  server.on_drain = [] {};
  server.silence_limit = options.silence_limit;
  server.facts.version = "test";
  server.facts.socket = socket_;
  server.facts.segment_socket = segment_socket_;
  server_ = loop_->Do([&] { return rpc::Server::Start(std::move(server)); }).value();
}

TestDaemon::~TestDaemon() {
  const bool ended = loop_->Do([this] {
    const bool in_time =
        server_->Shutdown(std::chrono::steady_clock::now() + std::chrono::seconds(10));
    server_.reset();
    return in_time;
  });
  EXPECT_TRUE(ended) << "the server did not stop in time";
  loop_->work.reset();
  loop_->io.stop();
  loop_->thread.join();
}

std::shared_ptr<grpc::Channel> TestDaemon::Connect() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt("grpc.use_local_subchannel_pool", 1);  // a connection of its own
  return grpc::CreateCustomChannel("unix:" + socket_, grpc::InsecureChannelCredentials(),
                                   arguments);
}

GrpcSession::GrpcSession(std::shared_ptr<grpc::Channel> channel)
    : channel_(std::move(channel)),
      stub_(v1::Loader::NewStub(channel_)),
      stream_(stub_->Session(&context_)) {}

GrpcSession::~GrpcSession() {
  if (!finished_) context_.TryCancel();
  if (!finished_) stream_->Finish();
}

bool GrpcSession::Open(const std::string& folder, int batch_size, v1::DeliveryWay way) {
  v1::SessionRequest request;
  v1::JobSpec* spec = request.mutable_open()->mutable_spec();
  spec->mutable_dataset()->mutable_image_folder()->set_path(folder);
  spec->set_batch_size(batch_size);
  spec->add_transform()->mutable_center_crop()->add_size(32);
  request.mutable_open()->set_delivery(way);
  return Send(request);
}

v1::Opened GrpcSession::Opened() {
  v1::SessionResponse response;
  while (Receive(response)) {
    if (response.has_indexing()) continue;
    EXPECT_TRUE(response.has_opened()) << response.ShortDebugString();
    return response.opened();
  }
  const grpc::Status status = Finish();
  ADD_FAILURE() << "not opened: " << status.error_code() << " " << status.error_message();
  return {};
}

void GrpcSession::StartEpoch(uint64_t epoch, uint32_t want) {
  v1::SessionRequest request;
  request.mutable_start_epoch()->set_epoch(epoch);
  request.mutable_start_epoch()->set_start(epoch + 1);
  Send(request);
  request.mutable_want()->set_count(want);
  Send(request);
}

void GrpcSession::Release(uint32_t slot) {
  v1::SessionRequest request;
  request.mutable_release()->add_slot(slot);
  Send(request);
}

grpc::Status GrpcSession::Finish() {
  finished_ = true;
  return stream_->Finish();
}

}  // namespace loaderd
