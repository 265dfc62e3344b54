// SPDX-License-Identifier: Apache-2.0
// Opening: the handshake, the segment, what goes wrong there, and how long each may take.
#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include "tests/unit/client/session_fixture.h"

namespace loaderd::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

class OpenTest : public SessionFixture {
 protected:
  OpenTest() {
    log_.clear();
    told_.clear();
    descriptors_ = OpenDescriptors();
  }
  // A failed open must leave nothing behind.
  void ExpectNothingLeft() {
    EXPECT_EQ(session_, nullptr);
    if (daemon_ != nullptr) {
      EXPECT_TRUE(daemon_->EndsWithin(kSoon));
    }
    daemon_.reset();
    EXPECT_EQ(DescriptorsOnceThey(descriptors_), descriptors_);
  }

  static inline std::vector<std::string> told_;
  int descriptors_ = 0;
};

TEST_F(OpenTest, RefusalIsPassedOn) {
  FakeDaemon::Options options;
  options.on_open = [](PeerConnection& peer, const said::Request&) {
    peer.Finish("3", "batch_size: 10000000 is over the limit of 65536");
    return true;
  };
  StartDaemon(std::move(options));
  EXPECT_EQ(Open(), LOADERD_INVALID_ARGUMENT);
  EXPECT_STREQ(loaderd_error(), "batch_size: 10000000 is over the limit of 65536");
  ExpectNothingLeft();
}

TEST_F(OpenTest, IndexingMayTakeLongerThanTheTimeLimit) {
  FakeDaemon::Options options;
  options.on_open = [](PeerConnection& peer, const said::Request&) {
    for (int i = 0; i < 8; ++i) {
      peer.Reply(said::Indexing(1000u * static_cast<unsigned>(i)));
      std::this_thread::sleep_for(milliseconds(100));
    }
    return false;
  };
  StartDaemon(std::move(options));
  loaderd_open_options options_c = OpenOptions();
  options_c.timeout_ms = 400;
  options_c.waiting = [](void*, const char* what) {
    told_.emplace_back(what);
    return 0;
  };
  ASSERT_EQ(loaderd_open("{}", &options_c, &session_), LOADERD_OK) << loaderd_error();
  EXPECT_GE(told_.size(), 4u);
  EXPECT_THAT(told_, Contains(HasSubstr("indexing the dataset (3000 files so far)")));
}

TEST_F(OpenTest, SilentDaemonIsGivenUpInTime) {
  FakeDaemon::Options options;
  options.on_open = [](PeerConnection& peer, const said::Request&) { return peer.WaitForEnd(); };
  StartDaemon(std::move(options));
  loaderd_open_options options_c = OpenOptions();
  options_c.timeout_ms = 300;
  const auto begin = steady_clock::now();
  EXPECT_EQ(loaderd_open("{}", &options_c, &session_), LOADERD_DEADLINE_EXCEEDED);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(300));
  EXPECT_LT(steady_clock::now() - begin, milliseconds(1500));
  EXPECT_THAT(loaderd_error(), AllOf(HasSubstr("300 ms"), HasSubstr("d.sock")));
  ExpectNothingLeft();
}

TEST_F(OpenTest, WaitingMayBeCalledOff) {
  FakeDaemon::Options options;
  options.on_open = [](PeerConnection& peer, const said::Request&) { return peer.WaitForEnd(); };
  StartDaemon(std::move(options));
  loaderd_open_options options_c = OpenOptions();
  int asked = 0;
  options_c.waiting = [](void* arg, const char*) { return ++*static_cast<int*>(arg) == 3 ? 1 : 0; };
  options_c.waiting_arg = &asked;
  EXPECT_EQ(loaderd_open("{}", &options_c, &session_), LOADERD_CANCELLED);
  EXPECT_EQ(asked, 3);
  ExpectNothingLeft();
}

TEST_F(OpenTest, LayoutThatDoesNotFitIsRefused) {
  const std::pair<const char*, std::function<void(said::OpenedSpec&)>> cases[] = {
      {"without fields", [](auto& opened) { opened.fields.clear(); }},
      {"ends past the slot's", [](auto& opened) { opened.fields[1].offset = 8192 - 24 - 40 + 64; }},
      {"ends past the slot's", [](auto& opened) { opened.fields[0].offset = UINT64_MAX - 63; }},
      {"not aligned", [](auto& opened) { opened.fields[1].offset = 4033; }},
      {"unknown dtype 'complex64'", [](auto& opened) { opened.fields[0].dtype = "complex64"; }},
      {"has no name", [](auto& opened) { opened.fields[0].name = ""; }},
      {"empty dimension", [](auto& opened) { opened.fields[0].shape[1] = 0; }},
      {"empty dimension", [](auto& opened) { opened.fields[0].shape[1] = -5; }},
      {"not contiguous", [](auto& opened) { opened.fields[0].strides[0] = 999; }},
      {"not contiguous", [](auto& opened) { opened.fields[0].strides[2] = -1; }},
      {"stride count", [](auto& opened) { opened.fields[0].strides.pop_back(); }},
      {"0 dimensions", [](auto& opened) { opened.fields[0].shape.clear(); }},
      {"capacity unlike", [](auto& opened) { opened.fields[1].shape[0] = 5; }},
      {"too many samples", [](auto& opened) { opened.fields[0].shape[0] = INT64_MAX; }},
      {"is too large",
       [](auto& opened) {
         opened.fields[0].shape = {4, INT64_MAX / 2, 4};
         opened.fields[0].strides = {INT64_MAX / 2 * 2, 4, 1};
       }},
      {"without slots", [](auto& opened) { opened.slot_count = 0; }},
      {"page size", [](auto& opened) { opened.slot_bytes = 8000; }},
      {"32769 bytes for 4 slots", [](auto& opened) { opened.segment_bytes += 1; }},
      {"segment of", [](auto& opened) { opened.slot_bytes = uint64_t{1} << 62; }},
      {"16 bytes", [](auto& opened) { opened.token = "short"; }},
  };
  for (const auto& [text, spoil] : cases) {
    FakeDaemon::Options options;
    spoil(options.opened);
    // The fake's own segment stays small and sound.
    options.on_open = [opened = options.opened](PeerConnection& peer, const said::Request&) {
      peer.Reply(said::Opened(opened));
      return peer.WaitForEnd();
    };
    options.opened = {};
    StartDaemon(std::move(options));
    EXPECT_EQ(Open(), LOADERD_INTERNAL) << text;
    EXPECT_THAT(loaderd_error(), HasSubstr(text));
    ExpectNothingLeft();
  }
}

TEST_F(OpenTest, SegmentWithoutItsSealsIsRefused) {
  for (const int seals :
       {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL}) {
    FakeDaemon::Options options;
    options.seals = seals;
    StartDaemon(std::move(options));
    EXPECT_EQ(Open(), LOADERD_INTERNAL) << seals;
    EXPECT_THAT(loaderd_error(), HasSubstr("not sealed"));
    ExpectNothingLeft();
  }
}

TEST_F(OpenTest, SegmentOfAnotherSizeIsRefused) {
  for (const int64_t size : {int64_t{0}, int64_t{4096}, int64_t{4 * 8192 + 4096}}) {
    FakeDaemon::Options options;
    options.segment_size = size;
    StartDaemon(std::move(options));
    EXPECT_EQ(Open(), LOADERD_INTERNAL) << size;
    EXPECT_THAT(loaderd_error(),
                AllOf(HasSubstr(std::to_string(size) + " bytes"), HasSubstr("announced 32768")));
    ExpectNothingLeft();
  }
}

TEST_F(OpenTest, RefusedTokenIsAnErrorWithTheDaemonsText) {
  FakeDaemon::Options options;
  options.refusal = "this token was used before";
  StartDaemon(std::move(options));
  EXPECT_EQ(Open(), LOADERD_PERMISSION_DENIED);
  EXPECT_THAT(loaderd_error(),
              AllOf(HasSubstr("this token was used before"), HasSubstr("d-segment.sock")));
  ExpectNothingLeft();
}

TEST_F(OpenTest, SurplusDescriptorsAreClosed) {
  FakeDaemon::Options options;
  options.extra_descriptors = 9;
  StartDaemon(std::move(options));
  const int before = OpenDescriptors();
  ASSERT_EQ(Open(), LOADERD_OK) << loaderd_error();
  EXPECT_EQ(DescriptorsOnceThey(before + 2), before + 2);  // the connection's two ends
}

TEST_F(OpenTest, SilentSegmentSocketIsGivenUpInTime) {
  FakeDaemon::Options options;
  options.segment_silent = true;
  StartDaemon(std::move(options));
  loaderd_open_options options_c = OpenOptions();
  options_c.timeout_ms = 300;
  EXPECT_EQ(loaderd_open("{}", &options_c, &session_), LOADERD_DEADLINE_EXCEEDED);
  EXPECT_THAT(loaderd_error(), HasSubstr("d-segment.sock"));
}

TEST_F(OpenTest, FallsBackToInlineWhereAllowed) {
  FakeDaemon::Options options;
  options.refusal = "no";
  StartDaemon(std::move(options));
  ASSERT_EQ(Open(LOADERD_MAPPED_OR_INLINE), LOADERD_OK) << loaderd_error();
  EXPECT_EQ(loaderd_opened_of(session_)->delivery, LOADERD_INLINE);
  EXPECT_THAT(log_, Contains(HasSubstr("inline")));
  EXPECT_EQ(daemon_->connections(), 2);
  ASSERT_EQ(loaderd_start_epoch(session_, 0, 0, 0), LOADERD_OK);
  const loaderd_batch* const batch = Next();
  EXPECT_EQ(batch->copied, 1);
  loaderd_release(batch);
}

TEST_F(OpenTest, LargeJobGoesThroughATinyWindow) {
  FakeDaemon::Options options;
  options.http2.settings = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1000}};
  StartDaemon(std::move(options));
  const std::string job(1 << 20, 'j');
  const loaderd_open_options options_c = OpenOptions();
  ASSERT_EQ(loaderd_open(job.c_str(), &options_c, &session_), LOADERD_OK) << loaderd_error();
  EXPECT_EQ(daemon_->last_open().json, job);
  const std::string longer = job + "j";
  loaderd_session* none = nullptr;
  EXPECT_EQ(loaderd_open(longer.c_str(), &options_c, &none), LOADERD_INVALID_ARGUMENT);
  EXPECT_THAT(loaderd_error(), AllOf(HasSubstr("1048577"), HasSubstr("1048576")));
}

TEST_F(OpenTest, WrongOptionsAreRefused) {
  loaderd_open_options options = OpenOptions();
  options.struct_size = 8;
  EXPECT_EQ(loaderd_open("{}", &options, &session_), LOADERD_INVALID_ARGUMENT);
  EXPECT_THAT(loaderd_error(), HasSubstr("struct_size is 8"));
  options = OpenOptions();
  options.delivery = 3;
  EXPECT_EQ(loaderd_open("{}", &options, &session_), LOADERD_INVALID_ARGUMENT);
  EXPECT_THAT(loaderd_error(), HasSubstr("delivery is 3"));
}

TEST_F(OpenTest, ExpectedOrderIsAskedForAndTheOrderThatItHasIsTold) {
  StartDaemon();
  loaderd_open_options options = OpenOptions();
  options.expected_order_fingerprint = "the order of before";
  ASSERT_EQ(loaderd_open("{}", &options, &session_), LOADERD_OK) << loaderd_error();
  EXPECT_EQ(daemon_->last_open().expected_order_fingerprint, "the order of before");
  EXPECT_STREQ(loaderd_opened_of(session_)->order_fingerprint, "order-fingerprint");
}

TEST_F(OpenTest, OptionsOfAnOlderCallerEndBeforeTheExpectedOrder) {
  StartDaemon();
  loaderd_open_options options = OpenOptions();
  options.expected_order_fingerprint = "not there in the older struct";
  options.struct_size = offsetof(loaderd_open_options, expected_order_fingerprint);
  ASSERT_EQ(loaderd_open("{}", &options, &session_), LOADERD_OK) << loaderd_error();
  EXPECT_EQ(daemon_->last_open().expected_order_fingerprint, "");
}

TEST_F(OpenTest, DescriptionIsJoinedFromItsParts) {
  Http2Peer peer(folder_ / "d.sock", [](PeerConnection& call) {
    const auto request = call.Request();
    ASSERT_TRUE(request.has_value());
    EXPECT_THAT(*request, HasSubstr("image_folder"));
    const auto part = [](std::vector<std::string> names, uint64_t classes) {
      std::string out;
      protozero::pbf_writer writer(out);
      writer.add_uint64(1, classes * 10);
      writer.add_uint64(2, classes);
      for (const std::string& name : names) writer.add_string(3, name);
      writer.add_string(4, "fingerprint");
      return out;
    };
    std::this_thread::sleep_for(milliseconds(600));
    call.Reply(part({"cat"}, 3));
    call.Reply(part({"dog", "eel"}, 0));
    call.Finish("0");
  });
  loaderd_open_options options = OpenOptions();
  options.timeout_ms = 300;  // to reach a daemon; indexing takes longer
  const loaderd_description* description = nullptr;
  ASSERT_EQ(loaderd_describe("{\"image_folder\": {}}", &options, &description), LOADERD_OK)
      << loaderd_error();
  EXPECT_EQ(description->num_samples, 30u);
  ASSERT_EQ(description->num_classes, 3u);
  EXPECT_STREQ(description->class_names[0], "cat");
  EXPECT_STREQ(description->class_names[2], "eel");
  EXPECT_STREQ(description->order_fingerprint, "fingerprint");
  loaderd_free_description(description);
}

TEST_F(OpenTest, DescriptionWithMissingNamesIsAnError) {
  Http2Peer peer(folder_ / "d.sock", [](PeerConnection& call) {
    call.Request();
    std::string out;
    protozero::pbf_writer(out).add_uint64(2, 1'000'000'000'000);
    call.Reply(out);
    call.Finish("0");
  });
  const loaderd_open_options options = OpenOptions();
  const loaderd_description* description = nullptr;
  EXPECT_EQ(loaderd_describe("{}", &options, &description), LOADERD_INTERNAL);
  EXPECT_EQ(description, nullptr);
  loaderd_free_description(nullptr);
}

}  // namespace
}  // namespace loaderd::client
