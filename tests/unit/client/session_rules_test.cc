// SPDX-License-Identifier: Apache-2.0
// What a daemon with a bug says, and a newer daemon: errors, never a crash.
#include <utility>

#include "tests/unit/client/session_fixture.h"

namespace loaderd::client {
namespace {

using testing::HasSubstr;

class SessionRulesTest : public SessionFixture {};

// Each is a daemon with a fault; the client must answer with an error that says so, and go on
// living.
TEST_F(SessionRulesTest, RepliesThatBreakTheRulesAreErrors) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"slot 4 of 4", {said::Batch({.slot = 4})}},
      {"slot 4294967295", {said::Batch({.slot = UINT32_MAX})}},
      {"5 samples in room for 4", {said::Batch({.count = 5})}},
      {"4294967295 samples", {said::Batch({.count = UINT32_MAX})}},
      {"handling 0", {said::Batch({.handling = 0})}},
      {"handling 77", {said::Batch({.handling = 77})}},
      {"2 bad samples, of which it named 0", {said::Batch({.bad_count = 2})}},
      {"named 1", {said::BadSample(1, "x", -1), said::Batch({})}},
      {"more bad samples",
       {said::BadSample(1, "", 0), said::BadSample(1, "", 0), said::BadSample(1, "", 0),
        said::BadSample(1, "", 0), said::BadSample(1, "", 0)}},
      {"inline batch of 8193", {said::Batch({.handling = said::kInline, .inline_bytes = 8193})}},
      {"inline batch of 100 bytes",
       {said::Batch({.handling = said::kInline, .inline_bytes = 100})}},
      {"belongs to no batch", {said::Chunk("x")}},
      {"belongs to no batch",
       {said::Batch({.handling = said::kInline, .inline_bytes = 4064}),
        said::Chunk(std::string(4065, 'x'))}},
      {"within an inline batch",
       {said::Batch({.handling = said::kInline, .inline_bytes = 4064}), said::Batch({})}},
      {"within an inline batch",
       {said::Batch({.handling = said::kInline, .inline_bytes = 4064}), said::EpochEnd(1, 0)}},
      {"opened twice", {said::Opened()}},
      {"no valid message", {"\x0a\xff"}},
      {"no valid message", {std::string("\x1a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", 12)}},
  };
  for (const auto& [text, replies] : cases) {
    FakeDaemon::Options options;
    options.deliver = [&replies = replies](FakeDaemon&, PeerConnection& peer, uint64_t, uint64_t) {
      for (const std::string& reply : replies) peer.Reply(reply);
      return true;
    };
    Begin(std::move(options));
    EXPECT_EQ(NextCode(), LOADERD_INTERNAL) << text;
    EXPECT_THAT(loaderd_error(), HasSubstr(text));
    EXPECT_EQ(NextCode(), LOADERD_INTERNAL) << text;
    loaderd_close(std::exchange(session_, nullptr));
    daemon_.reset();
  }
}

TEST_F(SessionRulesTest, SlotThatIsLentIsNotTakenTwice) {
  FakeDaemon::Options options;
  options.deliver = [](FakeDaemon&, PeerConnection& peer, uint64_t start, uint64_t step) {
    peer.Reply(said::Batch({.start = start, .step = step, .slot = 2}));
    return true;
  };
  Begin(std::move(options));
  const loaderd_batch* const batch = Next();
  EXPECT_EQ(NextCode(), LOADERD_INTERNAL);
  EXPECT_THAT(loaderd_error(), HasSubstr("slot 2, which is lent"));
  loaderd_release(batch);
}

TEST_F(SessionRulesTest, RepliesOfANewerDaemonArePassedOver) {
  FakeDaemon::Options options;
  options.deliver = [](FakeDaemon&, PeerConnection& peer, uint64_t, uint64_t) {
    peer.Reply(said::Response(77, [](auto& body) { body.add_string(1, "news"); }));
    peer.Reply("");
    return false;
  };
  Begin(std::move(options));
  loaderd_release(Next());
}

}  // namespace
}  // namespace loaderd::client
