// SPDX-License-Identifier: Apache-2.0
// The Loader service by stock gRPC, against a whole daemon: what any gRPC client gets.
#include <cstring>
#include <filesystem>
#include <set>

#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/integration/test_daemon.h"

namespace loaderd {
namespace {

using ::testing::HasSubstr;

const v1::Field& FieldOf(const v1::Opened& opened, const std::string& name) {
  for (const v1::Field& field : opened.field()) {
    if (field.name() == name) return field;
  }
  ADD_FAILURE() << "no field " << name;
  return opened.field(0);
}

class RpcSessionTest : public ::testing::Test {
 protected:
  RpcSessionTest() { MakeImageFolder(data_.path(), 3, 7); }  // 21 images

  // Reads one inline batch: its reference and its bytes.
  std::pair<v1::BatchRef, std::string> ReadInline(GrpcSession& session) {
    v1::SessionResponse response;
    EXPECT_TRUE(session.Receive(response));
    EXPECT_TRUE(response.has_batch()) << response.ShortDebugString();
    const v1::BatchRef batch = response.batch();
    std::string bytes;
    while (bytes.size() < batch.inline_bytes() && session.Receive(response)) {
      EXPECT_TRUE(response.has_chunk());
      EXPECT_LE(response.chunk().data().size(), 1u << 20);
      bytes += response.chunk().data();
    }
    EXPECT_EQ(bytes.size(), batch.inline_bytes());
    return {batch, bytes};
  }

  TemporaryFolder data_;
  TestDaemon daemon_;
};

TEST_F(RpcSessionTest, InlineEpochHasEachSampleOnceInOrder) {
  GrpcSession session(daemon_.Connect());
  ASSERT_TRUE(session.Open(data_.path(), 4, v1::DELIVERY_WAY_INLINE));
  const v1::Opened opened = session.Opened();
  EXPECT_EQ(opened.num_samples(), 21u);
  EXPECT_EQ(opened.num_batches(), 6u);
  EXPECT_TRUE(opened.segment_token().empty());
  session.StartEpoch(0, 7);
  std::vector<int64_t> indices;
  for (int step = 0; step < 6; ++step) {
    const auto [batch, bytes] = ReadInline(session);
    EXPECT_EQ(batch.step(), static_cast<uint64_t>(step));
    EXPECT_EQ(batch.handling(), v1::HANDLING_INLINE);
    for (uint32_t row = 0; row < batch.count(); ++row) {
      int64_t index = 0;
      std::memcpy(&index, bytes.data() + FieldOf(opened, "index").offset() + row * 8, 8);
      int64_t label = 0;
      std::memcpy(&label, bytes.data() + FieldOf(opened, "labels").offset() + row * 8, 8);
      EXPECT_EQ(label, index / 7);
      indices.push_back(index);
    }
  }
  v1::SessionResponse response;
  ASSERT_TRUE(session.Receive(response));
  EXPECT_EQ(response.epoch_end().num_batches(), 6u);
  std::vector<int64_t> wanted(21);
  for (int i = 0; i < 21; ++i) wanted[i] = i;
  EXPECT_EQ(indices, wanted);
}

TEST_F(RpcSessionTest, InlineBatchLargerThanAMessageComesInChunks) {
  GrpcSession session(daemon_.Connect());
  v1::SessionRequest request;
  v1::JobSpec* spec = request.mutable_open()->mutable_spec();
  spec->mutable_dataset()->mutable_image_folder()->set_path(data_.path());
  spec->set_batch_size(8);
  spec->add_transform()->mutable_center_crop()->add_size(512);  // 8 x 512 x 512 x 3 = 6 MiB
  request.mutable_open()->set_delivery(v1::DELIVERY_WAY_INLINE);
  ASSERT_TRUE(session.Send(request));
  EXPECT_GT(session.Opened().slot_bytes(), 6u << 20);
  session.StartEpoch(0, 3);
  for (int step = 0; step < 3; ++step) EXPECT_GT(ReadInline(session).second.size(), 6u << 20);
}

TEST_F(RpcSessionTest, ErrorsOfTheCallerNameTheField) {
  const auto refusal = [&](const v1::SessionRequest& request) {
    GrpcSession session(daemon_.Connect());
    session.Send(request);
    v1::SessionResponse response;
    EXPECT_FALSE(session.Receive(response)) << response.ShortDebugString();
    return session.Finish();
  };
  v1::SessionRequest request;
  request.mutable_want()->set_count(1);
  EXPECT_EQ(refusal(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refusal(request).error_message(), HasSubstr("open"));

  request.mutable_open();
  EXPECT_EQ(refusal(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  request.mutable_open()->set_json(R"({"dataset":{"image_folder":{"path":"/x"}},"batch_sise":3})");
  EXPECT_EQ(refusal(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refusal(request).error_message(), HasSubstr("batch_sise"));

  v1::JobSpec* spec = request.mutable_open()->mutable_spec();
  spec->mutable_dataset()->mutable_image_folder()->set_path(data_.path());
  EXPECT_THAT(refusal(request).error_message(), HasSubstr("transform"));  // no fixed size
  spec->add_transform()->mutable_center_crop()->add_size(0);
  EXPECT_THAT(refusal(request).error_message(), HasSubstr("transform[0].center_crop"));
  spec->mutable_transform(0)->mutable_center_crop()->set_size(0, 32);
  spec->set_batch_size(10'000'000);
  EXPECT_THAT(refusal(request).error_message(), HasSubstr("batch_size"));
  spec->set_batch_size(4);
  spec->mutable_dataset()->mutable_image_folder()->set_path(data_.path() + "/none");
  EXPECT_THAT(refusal(request).error_message(), HasSubstr(data_.path() + "/none"));

  spec->mutable_dataset()->mutable_image_folder()->set_path(data_.path());
  request.mutable_open()->add_features("teleport");
  EXPECT_EQ(refusal(request).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(refusal(request).error_message(), HasSubstr("teleport"));
}

TEST_F(RpcSessionTest, ABatchThatCannotFitIsRefusedWithTheNumbers) {
  GrpcSession session(daemon_.Connect());
  v1::SessionRequest request;
  v1::JobSpec* spec = request.mutable_open()->mutable_spec();
  spec->mutable_dataset()->mutable_image_folder()->set_path(data_.path());
  spec->set_batch_size(1024);
  spec->add_transform()->mutable_center_crop()->add_size(512);  // 768 MiB of 64
  ASSERT_TRUE(session.Send(request));
  v1::SessionResponse response;
  EXPECT_FALSE(session.Receive(response));
  const grpc::Status status = session.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("805326848"));          // asked, at least
  EXPECT_THAT(status.error_message(), HasSubstr("67108864"));           // of
  EXPECT_THAT(status.error_message(), HasSubstr("limits.slot_bytes"));  // the setting
}

TEST_F(RpcSessionTest, ReleaseOfASlotThatIsNotLentEndsTheSession) {
  GrpcSession session(daemon_.Connect());
  ASSERT_TRUE(session.Open(data_.path(), 4));
  session.Opened();
  session.Release(2);
  v1::SessionResponse response;
  EXPECT_FALSE(session.Receive(response));
  EXPECT_EQ(session.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RpcSessionTest, MemoryStaysChargedUntilTheConnectionCloses) {
  auto channel = daemon_.Connect();
  {
    GrpcSession session(channel);
    ASSERT_TRUE(session.Open(data_.path(), 4));
    session.Opened();
    EXPECT_GT(daemon_.slot_bytes().used(), 0u);
    session.HalfClose();
    EXPECT_TRUE(session.Finish().ok());
  }
  ASSERT_TRUE(Eventually([&] { return daemon_.server().sessions() == 0; }));
  EXPECT_GT(daemon_.slot_bytes().used(), 0u) << "the client may still map it";
  channel.reset();
  EXPECT_TRUE(Eventually([&] { return daemon_.slot_bytes().used() == 0; }));
  EXPECT_TRUE(Eventually([&] { return daemon_.sessions().used() == 0; }));
}

TEST_F(RpcSessionTest, InlineMemoryGoesBackWithTheSession) {
  auto channel = daemon_.Connect();
  {
    GrpcSession session(channel);
    ASSERT_TRUE(session.Open(data_.path(), 4, v1::DELIVERY_WAY_INLINE));
    session.Opened();
    EXPECT_GT(daemon_.slot_bytes().used(), 0u);
  }
  EXPECT_TRUE(Eventually([&] { return daemon_.slot_bytes().used() == 0; }));
}

TEST_F(RpcSessionTest, ACancelledCallLeavesNothing) {
  for (int round = 0; round < 20; ++round) {
    GrpcSession session(daemon_.Connect());
    ASSERT_TRUE(session.Open(data_.path(), 2, v1::DELIVERY_WAY_INLINE));
    session.Opened();
    session.StartEpoch(0, 1000);
    v1::SessionResponse response;
    session.Receive(response);
  }
  EXPECT_TRUE(Eventually([&] {
    return daemon_.slot_bytes().used() == 0 && daemon_.sessions().used() == 0 &&
           daemon_.descriptors().used() == 0;
  }));
  EXPECT_EQ(daemon_.server().sessions(), 0u);
}

TEST_F(RpcSessionTest, DescribeTellsAllClassesOverSeveralReplies) {
  TemporaryFolder wide;
  std::set<std::string> names;
  for (int c = 0; c < 2000; ++c) {
    const std::string name = "class-" + std::string(200, 'x') + std::to_string(c);
    names.insert(name);
    MakeImageFolder(wide.path() + "/made", 1, 1);
    std::filesystem::rename(wide.path() + "/made/c0", wide.path() + "/" + name);
  }
  std::filesystem::remove_all(wide.path() + "/made");
  auto stub = v1::Loader::NewStub(daemon_.Connect());
  grpc::ClientContext context;
  v1::DescribeRequest request;
  request.mutable_dataset()->mutable_image_folder()->set_path(wide.path());
  auto reader = stub->Describe(&context, request);
  std::vector<std::string> told;
  v1::DescribeResponse response;
  int replies = 0;
  while (reader->Read(&response)) {
    if (replies++ == 0) {
      EXPECT_EQ(response.num_samples(), 2000u);
      EXPECT_EQ(response.num_classes(), 2000u);
    }
    told.insert(told.end(), response.class_name().begin(), response.class_name().end());
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_GT(replies, 1);
  EXPECT_EQ(told, std::vector<std::string>(names.begin(), names.end()));
}

TEST_F(RpcSessionTest, DrainRefusesNewSessionsAndLetsRunningOnesGoOn) {
  GrpcSession running(daemon_.Connect());
  ASSERT_TRUE(running.Open(data_.path(), 4, v1::DELIVERY_WAY_INLINE));
  running.Opened();
  auto admin = v1::Admin::NewStub(daemon_.Connect());
  grpc::ClientContext context;
  v1::DrainResponse drained;
  ASSERT_TRUE(admin->Drain(&context, {}, &drained).ok());
  EXPECT_EQ(drained.sessions_left(), 1u);

  GrpcSession late(daemon_.Connect());
  ASSERT_TRUE(late.Open(data_.path(), 4));
  v1::SessionResponse response;
  EXPECT_FALSE(late.Receive(response));
  const grpc::Status status = late.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("stopping"));

  running.StartEpoch(0, 1);
  EXPECT_EQ(ReadInline(running).first.count(), 4u);
}

TEST_F(RpcSessionTest, StatusAndSessionsTellWhatIsGoingOn) {
  GrpcSession session(daemon_.Connect());
  ASSERT_TRUE(session.Open(data_.path(), 4));
  const v1::Opened opened = session.Opened();
  auto admin = v1::Admin::NewStub(daemon_.Connect());
  grpc::ClientContext status_context;
  v1::GetStatusResponse status;
  ASSERT_TRUE(admin->GetStatus(&status_context, {}, &status).ok());
  EXPECT_EQ(status.sessions(), 1u);
  EXPECT_EQ(status.connections(), 2u);
  EXPECT_EQ(status.state(), "serving");
  EXPECT_GT(status.descriptors_open(), 0u);
  ASSERT_EQ(status.budget_size(), 3);

  grpc::ClientContext list_context;
  auto list = admin->ListSessions(&list_context, {});
  v1::ListSessionsResponse page;
  ASSERT_TRUE(list->Read(&page));
  ASSERT_EQ(page.session_size(), 1);
  EXPECT_EQ(page.session(0).session(), opened.session());
  EXPECT_EQ(page.session(0).slots(), opened.slot_count());
  EXPECT_FALSE(list->Read(&page));
  EXPECT_TRUE(list->Finish().ok());
  EXPECT_TRUE(daemon_.server().AnswersItself(std::chrono::seconds(5)));
}

}  // namespace
}  // namespace loaderd
