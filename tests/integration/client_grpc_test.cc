// SPDX-License-Identifier: Apache-2.0
// The client, which carries no gRPC, against a stock gRPC server that says what a test tells it to.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loaderd/client.h"
#include "loaderd/v1/loader.grpc.pb.h"

namespace loaderd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Stream = grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>;

constexpr uint64_t kRow = 1000;
constexpr uint64_t kSlotBytes = 8192;

class ScriptedLoader : public v1::Loader::Service {
 public:
  std::function<grpc::Status(Stream*)> session;
  std::function<grpc::Status(const v1::DescribeRequest&, grpc::ServerWriter<v1::DescribeResponse>*)>
      describe;

 private:
  grpc::Status Session(grpc::ServerContext*, Stream* stream) override { return session(stream); }
  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest* request,
                        grpc::ServerWriter<v1::DescribeResponse>* writer) override {
    return describe(*request, writer);
  }
};

class ClientGrpcTest : public testing::Test {
 protected:
  ClientGrpcTest() {
    char name[] = "/tmp/lg-XXXXXX";
    folder_ = ::mkdtemp(name);
    socket_ = folder_ + "/d.sock";
  }
  ~ClientGrpcTest() override {
    loaderd_close(session_);
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    std::filesystem::remove_all(folder_);
  }

  // Server arguments change frame sizes and windows.
  void Serve(const std::vector<std::pair<std::string, int>>& arguments = {}) {
    grpc::ServerBuilder builder;
    for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
    builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
    builder.RegisterService(&loader_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  loaderd_code Open(const std::string& job = "{}") {
    const loaderd_open_options options = Options();
    return loaderd_open(job.c_str(), &options, &session_);
  }
  loaderd_open_options Options() const {
    loaderd_open_options options = {};
    options.struct_size = sizeof options;
    options.socket = socket_.c_str();
    options.timeout_ms = 10'000;
    options.delivery = LOADERD_INLINE;
    options.client = "integration test";
    return options;
  }

  static void AnswerOpened(Stream* stream) {
    v1::SessionResponse response;
    v1::Opened& opened = *response.mutable_opened();
    opened.set_session("s-7");
    opened.set_slot_bytes(kSlotBytes);
    opened.set_slot_count(4);
    opened.set_num_samples(1000);
    opened.set_num_batches(250);
    v1::Field& images = *opened.add_field();
    images.set_name("images");
    images.set_dtype("float32");
    for (const int64_t size : {4, 250}) images.add_shape(size);
    for (const int64_t stride : {1000, 4}) images.add_stride_bytes(stride);
    v1::Field& index = *opened.add_field();
    index.set_name("index");
    index.set_dtype("int64");
    index.add_shape(4);
    index.add_stride_bytes(8);
    index.set_offset(4032);
    stream->Write(response);
  }

  // Answers each Want by one inline batch in chunks of `chunk` bytes, `batches` a start.
  static grpc::Status Deliver(Stream* stream, uint64_t batches, size_t chunk) {
    v1::SessionRequest request;
    v1::StartEpoch start;
    uint64_t step = 0;
    while (stream->Read(&request)) {
      if (request.has_start_epoch()) {
        start = request.start_epoch();
        step = start.first_batch();
      }
      if (!request.has_want()) continue;
      v1::SessionResponse response;
      if (step == batches) {
        response.mutable_epoch_end()->set_start(start.start());
        stream->Write(response);
        continue;
      }
      v1::BadSample& bad = *response.mutable_bad_samples()->add_bad();
      bad.set_index(-1);
      bad.set_reason("step " + std::to_string(step));
      bad.set_substitute(-1);
      stream->Write(response);
      v1::BatchRef& batch = *response.mutable_batch();
      batch.set_start(start.start());
      batch.set_epoch(start.epoch());
      batch.set_step(step);
      batch.set_count(4);
      batch.set_bad_count(1);
      batch.set_handling(v1::HANDLING_INLINE);
      batch.set_inline_bytes(kSlotBytes);
      stream->Write(response);
      const std::string bytes(kSlotBytes, static_cast<char>(step + 1));
      for (size_t at = 0; at < bytes.size(); at += chunk) {
        response.mutable_chunk()->set_data(bytes.substr(at, chunk));
        stream->Write(response);
      }
      ++step;
    }
    return grpc::Status::OK;
  }

  // Two epochs with every byte looked at.
  void ExpectTwoEpochs(uint64_t batches) {
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      ASSERT_EQ(loaderd_start_epoch(session_, epoch, 0, 0), LOADERD_OK) << loaderd_error();
      const loaderd_batch* batch = nullptr;
      for (uint64_t step = 0; step < batches; ++step) {
        ASSERT_EQ(loaderd_next(session_, 10'000, &batch), LOADERD_OK) << loaderd_error();
        EXPECT_EQ(batch->epoch, epoch);
        EXPECT_EQ(batch->step, step);
        const std::string bytes(static_cast<const char*>(batch->data), 4 * kRow);
        EXPECT_EQ(bytes, std::string(4 * kRow, static_cast<char>(step + 1)));
        ASSERT_EQ(batch->bad_count, 1u);
        EXPECT_EQ(batch->bad[0].index, -1);
        EXPECT_EQ(batch->bad[0].reason, "step " + std::to_string(step));
        loaderd_release(batch);
      }
      ASSERT_EQ(loaderd_next(session_, 10'000, &batch), LOADERD_END_OF_EPOCH) << loaderd_error();
    }
  }

  std::string folder_;
  std::string socket_;
  ScriptedLoader loader_;
  std::unique_ptr<grpc::Server> server_;
  loaderd_session* session_ = nullptr;
};

TEST_F(ClientGrpcTest, BatchesArriveWholeWithEveryFrameSizeAndWindow) {
  const std::vector<std::pair<std::string, int>> cases[] = {
      {},
      {{GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20}},
      {{GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 5}, {GRPC_ARG_HTTP2_BDP_PROBE, 0}},
      {{GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1}},
  };
  for (const auto& arguments : cases) {
    for (const size_t chunk : {size_t{100}, size_t{kSlotBytes}}) {
      v1::Open open;
      loader_.session = [&open, chunk](Stream* stream) {
        v1::SessionRequest request;
        stream->Read(&request);
        open = request.open();
        AnswerOpened(stream);
        return Deliver(stream, 20, chunk);
      };
      Serve(arguments);
      const std::string job(300'000, 'j');
      ASSERT_EQ(Open(job), LOADERD_OK) << loaderd_error();
      EXPECT_EQ(open.json(), job);
      EXPECT_EQ(open.client(), "integration test");
      EXPECT_EQ(open.delivery(), v1::DELIVERY_WAY_INLINE);
      ExpectTwoEpochs(20);
      loaderd_close(std::exchange(session_, nullptr));
      server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
      server_.reset();
    }
  }
}

TEST_F(ClientGrpcTest, EveryRequestIsReadAsItWasMeant) {
  std::vector<std::string> heard;
  loader_.session = [&](Stream* stream) {
    v1::SessionRequest request;
    stream->Read(&request);
    AnswerOpened(stream);
    while (heard.size() < 6 && stream->Read(&request)) heard.push_back(request.ShortDebugString());
    return grpc::Status(grpc::StatusCode::ABORTED, "heard");
  };
  Serve();
  ASSERT_EQ(Open(), LOADERD_OK) << loaderd_error();
  const int64_t indices[] = {3, -1, int64_t{1} << 40};
  ASSERT_EQ(loaderd_start_epoch(session_, 2, 5, 1), LOADERD_OK);
  ASSERT_EQ(loaderd_send_indices(session_, 5, indices, 3), LOADERD_OK);
  ASSERT_EQ(loaderd_end_indices(session_), LOADERD_OK);
  ASSERT_EQ(loaderd_start_epoch(session_, 3, 0, 0), LOADERD_OK);
  const loaderd_batch* batch = nullptr;
  EXPECT_EQ(loaderd_next(session_, 10'000, &batch), LOADERD_ABORTED);
  EXPECT_THAT(
      heard,
      ElementsAre(
          "start_epoch { epoch: 2 first_batch: 5 start: 1 goes_on: true }", "want { count: 1 }",
          "indices { start: 1 batch: 5 index: 3 index: -1 index: 1099511627776 last: true }",
          "indices { start: 1 batch: 6 end: true }", "start_epoch { epoch: 3 start: 2 }",
          "want { count: 1 }"));
}

TEST_F(ClientGrpcTest, StatusTextsSurviveTheirEncoding) {
  const std::string texts[] = {"plain", "100% of %41", "caf\xc3\xa9\n\ttab",
                               std::string(3000, '%')};
  for (const std::string& text : texts) {
    loader_.session = [&](Stream* stream) {
      v1::SessionRequest request;
      stream->Read(&request);
      return grpc::Status(grpc::StatusCode::NOT_FOUND, text);
    };
    Serve();
    EXPECT_EQ(Open(), LOADERD_NOT_FOUND);
    EXPECT_EQ(loaderd_error(), text);
    server_->Shutdown();
    server_.reset();
  }
}

TEST_F(ClientGrpcTest, ServerWithoutTheServiceIsUnimplemented) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
  v1::Loader::Service nothing;
  builder.RegisterService(&nothing);
  server_ = builder.BuildAndStart();
  EXPECT_EQ(Open(), LOADERD_UNIMPLEMENTED);
}

TEST_F(ClientGrpcTest, SessionGoesOnWhileTheServerShutsDownGracefully) {
  loader_.session = [](Stream* stream) {
    v1::SessionRequest request;
    stream->Read(&request);
    AnswerOpened(stream);
    return Deliver(stream, 20, 1000);
  };
  Serve();
  ASSERT_EQ(Open(), LOADERD_OK) << loaderd_error();
  // Sends GOAWAY and waits for the calls that run.
  std::thread stopping(
      [&] { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(20)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ExpectTwoEpochs(20);
  loaderd_session* late = nullptr;
  const loaderd_open_options options = Options();
  EXPECT_EQ(loaderd_open("{}", &options, &late), LOADERD_UNAVAILABLE);
  EXPECT_THAT(loaderd_error(), HasSubstr(socket_));
  loaderd_close(std::exchange(session_, nullptr));
  stopping.join();
}

TEST_F(ClientGrpcTest, ServerThatStopsAtOnceIsUnavailable) {
  loader_.session = [](Stream* stream) {
    v1::SessionRequest request;
    stream->Read(&request);
    AnswerOpened(stream);
    while (stream->Read(&request)) {
    }
    return grpc::Status::OK;
  };
  Serve();
  ASSERT_EQ(Open(), LOADERD_OK) << loaderd_error();
  ASSERT_EQ(loaderd_start_epoch(session_, 0, 0, 0), LOADERD_OK);
  std::thread stopping([&] { server_->Shutdown(std::chrono::system_clock::now()); });
  const loaderd_batch* batch = nullptr;
  EXPECT_EQ(loaderd_next(session_, 10'000, &batch), LOADERD_UNAVAILABLE) << loaderd_error();
  EXPECT_THAT(loaderd_error(), HasSubstr(socket_));
  stopping.join();
}

TEST_F(ClientGrpcTest, DescriptionInManyPartsIsJoined) {
  constexpr int kClasses = 20'000;
  loader_.describe = [](const v1::DescribeRequest& request,
                        grpc::ServerWriter<v1::DescribeResponse>* writer) {
    EXPECT_EQ(request.json(), R"({"name": "flowers"})");
    for (int i = 0; i < kClasses; i += 1000) {
      v1::DescribeResponse response;
      if (i == 0) {
        response.set_num_classes(kClasses);
        response.set_num_samples(7);
        response.set_order_fingerprint("f00d");
      }
      for (int j = i; j < i + 1000; ++j) response.add_class_name("class " + std::to_string(j));
      writer->Write(response);
    }
    return grpc::Status::OK;
  };
  Serve();
  const loaderd_open_options options = Options();
  const loaderd_description* description = nullptr;
  ASSERT_EQ(loaderd_describe(R"({"name": "flowers"})", &options, &description), LOADERD_OK)
      << loaderd_error();
  ASSERT_EQ(description->num_classes, uint64_t{kClasses});
  EXPECT_EQ(description->num_samples, 7u);
  EXPECT_STREQ(description->class_names[kClasses - 1], "class 19999");
  EXPECT_STREQ(description->order_fingerprint, "f00d");
  loaderd_free_description(description);
}

}  // namespace
}  // namespace loaderd
