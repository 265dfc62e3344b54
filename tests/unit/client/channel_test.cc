// SPDX-License-Identifier: Apache-2.0
// gRPC over HTTP/2 against a peer that does everything the two specifications allow, and some
// things that they do not.
#include "client/cpp/src/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>

#include "client/cpp/src/patience.h"
#include "client/cpp/src/unix_socket.h"
#include "tests/unit/client/http2_peer.h"
#include "tests/unit/client/temp_folder.h"

namespace loaderd::client {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kMethod[] = "/test.Service/Call";

std::string Bytes(size_t size) {
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * 31 + i / 251);
  return out;
}

class ChannelTest : public testing::Test {
 protected:
  // A call in progress with a peer that runs `script`.
  Channel& Call(Http2Peer::Script script, PeerConnection::Options options = {}) {
    peer_ = std::make_unique<Http2Peer>(folder_ / "d.sock", std::move(script), std::move(options));
    std::unique_ptr<GuardedFd> fd;
    int error = 0;
    const Status status = Connect(peer_->socket(), &patience_, &fd, &error);
    EXPECT_TRUE(status.ok()) << status.text;
    channel_ = std::make_unique<Channel>(std::move(fd), peer_->socket());
    channel_->Begin(kMethod);
    channel_->Write();
    return *channel_;
  }

  // The next reply; none when the call has ended (or the time is up, which fails the test).
  std::optional<std::string> Next() {
    for (;;) {
      channel_->Read();
      channel_->Write();
      std::optional<std::string> reply = channel_->Take();
      if (reply.has_value() || channel_->ended()) return reply;
      const Status status = patience_.Wait(channel_->fd(), channel_->events(), "testing");
      EXPECT_TRUE(status.ok()) << status.text;
      if (!status.ok()) return std::nullopt;
    }
  }

  Status End() {
    const std::optional<std::string> reply = Next();
    EXPECT_FALSE(reply.has_value()) << "one reply too many, of " << reply->size() << " bytes";
    EXPECT_TRUE(channel_->ended());
    return channel_->outcome();
  }

  bool Soon(const std::atomic<bool>& flag) {
    for (int i = 0; i < 500 && !flag; ++i) {
      (void)patience_.Wait(-1, 0, "testing", std::chrono::milliseconds(10));
    }
    return flag;
  }

  TempFolder folder_;
  Patience patience_{20'000, nullptr, nullptr};
  std::unique_ptr<Http2Peer> peer_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(ChannelTest, RequestCarriesGrpcsHeaders) {
  HeaderList headers;
  Call([&](PeerConnection& peer) {
    peer.Serve([&] { return !peer.request_headers().empty(); });
    headers = peer.request_headers();
    peer.Finish("0");
  });
  EXPECT_TRUE(End().ok());
  peer_.reset();
  EXPECT_EQ(headers, (HeaderList{{":method", "POST"},
                                 {":scheme", "http"},
                                 {":path", kMethod},
                                 {":authority", "localhost"},
                                 {"te", "trailers"},
                                 {"content-type", "application/grpc"},
                                 {"user-agent", "loaderd-client/0.1"}}));
}

TEST_F(ChannelTest, EchoedMessagesArriveWholeInEveryFrameSize) {
  for (const size_t frame : {1, 2, 3, 4, 5, 6, 7, 100, 16384, 1 << 20}) {
    const std::vector<std::string> messages = {"", "a", Bytes(5), Bytes(frame < 8 ? 300 : 200'000),
                                               Bytes(17)};
    Call(
        [](PeerConnection& peer) {
          while (const auto request = peer.Request()) peer.Reply(*request);
          peer.Finish("0");
        },
        {.settings = {}, .reply_frame = frame, .mute = false});
    for (const std::string& message : messages) channel_->Send(message);
    channel_->HalfClose();
    for (const std::string& message : messages) ASSERT_EQ(Next(), message) << frame;
    EXPECT_TRUE(End().ok());
    channel_.reset();
    peer_.reset();
  }
}

TEST_F(ChannelTest, SeveralMessagesInOneFrameAreApart) {
  Call([](PeerConnection& peer) {
    peer.Headers(kGrpcHeaders);
    peer.Data(PeerConnection::Framed("one") + PeerConnection::Framed("") +
              PeerConnection::Framed("three"));
    peer.Finish("0");
  });
  EXPECT_EQ(Next(), "one");
  EXPECT_EQ(Next(), "");
  EXPECT_EQ(Next(), "three");
  EXPECT_TRUE(End().ok());
}

TEST_F(ChannelTest, LargeRequestWaitsForTheWindowsOfASlowPeer) {
  for (const uint32_t window : {1u, 100u, 16384u}) {
    const std::string big = Bytes(window == 1 ? 2'000 : 300'000);
    Call(
        [](PeerConnection& peer) {
          const auto request = peer.Request();
          ASSERT_TRUE(request.has_value());
          peer.Reply(*request);
          peer.Finish("0");
        },
        {.settings = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window}},
         .reply_frame = 16384,
         .mute = false});
    channel_->Send(big);
    EXPECT_EQ(Next(), big) << window;
    EXPECT_TRUE(End().ok());
    channel_.reset();
    peer_.reset();
  }
}

TEST_F(ChannelTest, SettingsMayChangeWhileACallRuns) {
  size_t largest_before = 0;
  size_t largest_after = 0;
  Call([&](PeerConnection& peer) {
    ASSERT_TRUE(peer.Request().has_value());
    largest_before = peer.largest_frame();
    peer.Settings({{NGHTTP2_SETTINGS_MAX_FRAME_SIZE, 65536},
                   {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 20}});
    peer.Serve([&] { return peer.settings_acknowledged() == 2; });
    peer.Reply("changed");
    ASSERT_TRUE(peer.Request().has_value());
    largest_after = peer.largest_frame();
    peer.Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0}});
    peer.Serve([&] { return peer.settings_acknowledged() == 3; });
    peer.Reply("shut");
    peer.Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 65535}});
    ASSERT_TRUE(peer.Request().has_value());
    peer.Finish("0");
  });
  channel_->Send(Bytes(40'000));
  EXPECT_EQ(Next(), "changed");
  channel_->Send(Bytes(400'000));
  EXPECT_EQ(Next(), "shut");
  channel_->Send(Bytes(100'000));
  EXPECT_TRUE(End().ok());
  peer_.reset();
  EXPECT_LE(largest_before, 16384u);
  EXPECT_LE(largest_after, 65536u);
}

TEST_F(ChannelTest, RepliesFarBeyondTheWindowsFlow) {
  constexpr int kReplies = 24;
  const std::string big = Bytes(1 << 20);
  Call(
      [&](PeerConnection& peer) {
        peer.Request();
        for (int i = 0; i < kReplies; ++i) peer.Reply(big);
        peer.Finish("0");
      },
      {.settings = {}, .reply_frame = 1 << 20, .mute = false});
  channel_->Send("go");
  for (int i = 0; i < kReplies; ++i) ASSERT_EQ(Next(), big);
  EXPECT_TRUE(End().ok());
}

TEST_F(ChannelTest, PingsAreAnswered) {
  Call([](PeerConnection& peer) {
    peer.Request();
    peer.Ping();
    peer.Ping();
    EXPECT_TRUE(peer.Serve([&] { return peer.pings_answered() == 2; }));
    peer.Finish("0");
  });
  channel_->Send("go");
  EXPECT_TRUE(End().ok());
}

TEST_F(ChannelTest, ErrorTextIsPercentDecodedAfterTheRepliesBeforeIt) {
  Call([](PeerConnection& peer) {
    peer.Reply("first");
    peer.Finish("3", "dataset.path: caf%C3%A9 100% wrong%0A");
  });
  EXPECT_EQ(Next(), "first");
  const Status status = End();
  EXPECT_EQ(status.code, LOADERD_INVALID_ARGUMENT);
  EXPECT_EQ(status.text, "dataset.path: caf\xc3\xa9 100% wrong\n");
}

TEST_F(ChannelTest, TrailersOnlyReplyIsAnError) {
  Call([](PeerConnection& peer) {
    peer.Headers({{":status", "200"},
                  {"content-type", "application/grpc"},
                  {"grpc-status", "12"},
                  {"grpc-message", "no such call"}},
                 true);
  });
  const Status status = End();
  EXPECT_EQ(status.code, LOADERD_UNIMPLEMENTED);
  EXPECT_EQ(status.text, "no such call");
}

TEST_F(ChannelTest, ErrorWithoutTextNamesTheSocket) {
  Call([](PeerConnection& peer) { peer.Finish("8"); });
  const Status status = End();
  EXPECT_EQ(status.code, LOADERD_RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.text, HasSubstr(peer_->socket()));
}

TEST_F(ChannelTest, OtherHttpStatusIsTranslated) {
  for (const bool end : {false, true}) {
    Call([&](PeerConnection& peer) {
      peer.Headers({{":status", "503"}, {"content-type", "text/html"}}, end);
      if (!end) peer.Data("<html>");
    });
    const Status status = End();
    EXPECT_EQ(status.code, LOADERD_UNAVAILABLE);
    EXPECT_THAT(status.text, HasSubstr("503"));
    channel_.reset();
    peer_.reset();
  }
}

TEST_F(ChannelTest, InformationalHeadersArePassedOver) {
  Call([](PeerConnection& peer) {
    peer.Headers({{":status", "100"}});
    peer.Headers(kGrpcHeaders);
    peer.Reply("here");
    peer.Finish("0");
  });
  EXPECT_EQ(Next(), "here");
  EXPECT_TRUE(End().ok());
}

TEST_F(ChannelTest, ReplyOfAWebServerIsNoGrpc) {
  Call([](PeerConnection& peer) {
    peer.Headers({{":status", "200"}, {"content-type", "text/html"}});
    peer.Data("<html>");
  });
  const Status status = End();
  EXPECT_EQ(status.code, LOADERD_UNKNOWN);
  EXPECT_THAT(status.text, HasSubstr("does not answer as a loaderd"));
}

TEST_F(ChannelTest, EndWithoutGrpcStatusIsAnError) {
  Call([](PeerConnection& peer) {
    peer.Reply("one");
    peer.EndWithoutTrailers();
  });
  EXPECT_EQ(Next(), "one");
  const Status status = End();
  EXPECT_EQ(status.code, LOADERD_UNKNOWN);
  EXPECT_THAT(status.text, HasSubstr("without a grpc-status"));
}

TEST_F(ChannelTest, EndWithinAMessageIsAnError) {
  Call([](PeerConnection& peer) {
    peer.Headers(kGrpcHeaders);
    peer.Data(PeerConnection::Framed("whole message").substr(0, 9));
    peer.Finish("0");
  });
  EXPECT_EQ(End().code, LOADERD_INTERNAL);
}

TEST_F(ChannelTest, ResetIsTranslated) {
  const std::pair<uint32_t, loaderd_code> cases[] = {
      {NGHTTP2_NO_ERROR, LOADERD_INTERNAL},
      {NGHTTP2_INTERNAL_ERROR, LOADERD_INTERNAL},
      {NGHTTP2_REFUSED_STREAM, LOADERD_UNAVAILABLE},
      {NGHTTP2_CANCEL, LOADERD_CANCELLED},
      {NGHTTP2_ENHANCE_YOUR_CALM, LOADERD_RESOURCE_EXHAUSTED},
  };
  for (const auto& [reset, code] : cases) {
    Call([reset = reset](PeerConnection& peer) { peer.Reset(reset); });
    EXPECT_EQ(End().code, code) << reset;
    channel_.reset();
    peer_.reset();
  }
}

TEST_F(ChannelTest, ResetAfterTrailersChangesNothing) {
  Call([](PeerConnection& peer) {
    peer.Request();
    peer.Finish("5", "gone");
    peer.Reset(NGHTTP2_NO_ERROR);
  });
  channel_->Send("x");
  const Status status = End();
  EXPECT_EQ(status.code, LOADERD_NOT_FOUND);
  EXPECT_EQ(status.text, "gone");
}

TEST_F(ChannelTest, CallGoesOnAfterAGracefulGoaway) {
  Call([](PeerConnection& peer) {
    peer.Request();
    peer.Goaway((1u << 31) - 1, NGHTTP2_NO_ERROR);
    peer.Goaway(1, NGHTTP2_NO_ERROR);
    peer.Reply("after the goaway");
    EXPECT_TRUE(peer.Request().has_value());
    peer.Finish("0");
  });
  channel_->Send("x");
  EXPECT_EQ(Next(), "after the goaway");
  channel_->Send("y");
  EXPECT_TRUE(End().ok());
}

TEST_F(ChannelTest, CallThatAGoawayLeavesOutIsUnavailable) {
  Call([](PeerConnection& peer) {
    peer.Request();
    peer.Goaway(0, NGHTTP2_NO_ERROR, "stopping");
    peer.WaitForEnd();
  });
  channel_->Send("x");
  const Status status = End();
  EXPECT_EQ(status.code, LOADERD_UNAVAILABLE);
  EXPECT_THAT(status.text, AllOf(HasSubstr("stopping"), HasSubstr(peer_->socket())));
  channel_.reset();
}

TEST_F(ChannelTest, CompressedMessageIsRefused) {
  std::atomic<bool> told{false};
  Call([&](PeerConnection& peer) {
    peer.Headers(kGrpcHeaders);
    peer.Data(std::string("\1\0\0\0\1x", 6));
    EXPECT_FALSE(peer.Request().has_value());
    told = peer.reset_by_client() == NGHTTP2_CANCEL;
  });
  const Status status = End();
  EXPECT_EQ(status.code, LOADERD_INTERNAL);
  EXPECT_THAT(status.text, HasSubstr("compressed"));
  EXPECT_TRUE(Soon(told));
}

TEST_F(ChannelTest, OverlongMessageIsRefusedByItsPrefix) {
  Call([](PeerConnection& peer) {
    peer.Headers(kGrpcHeaders);
    peer.Data(std::string("\0\xff\xff\xff\xff", 5));
    peer.Request();
  });
  const Status status = End();
  EXPECT_EQ(status.code, LOADERD_INTERNAL);
  EXPECT_THAT(status.text, AllOf(HasSubstr("4294967295"), HasSubstr("8388608")));
}

TEST_F(ChannelTest, MessageOfExactlyTheLimitPasses) {
  const std::string big = Bytes(Channel::kMaxMessage);
  Call([&](PeerConnection& peer) {
    peer.Reply(big);
    peer.Finish("0");
  });
  EXPECT_EQ(Next(), big);
  EXPECT_TRUE(End().ok());
}

TEST_F(ChannelTest, ConnectionClosedHalfWayIsUnavailable) {
  for (const size_t sent : {0, 3, 20}) {
    Call([&](PeerConnection& peer) {
      peer.Headers(kGrpcHeaders);
      peer.Data(PeerConnection::Framed(Bytes(100)).substr(0, sent));
      peer.Flush();
      peer.Close();
    });
    const Status status = End();
    EXPECT_EQ(status.code, LOADERD_UNAVAILABLE);
    EXPECT_THAT(status.text, AllOf(HasSubstr(peer_->socket()), HasSubstr("closed the connection"),
                                   HasSubstr("start it again")));
    channel_.reset();
    peer_.reset();
  }
}

TEST_F(ChannelTest, ErrorSentJustBeforeTheCloseIsNotLost) {
  Call([](PeerConnection& peer) {
    peer.Request();
    peer.Finish("14", "daemon is stopping");
    peer.Close();
  });
  channel_->Send("x");
  channel_->Write();
  // Into a connection that may be closed by now.
  for (int i = 0; i < 50; ++i) {
    (void)patience_.Wait(-1, 0, "testing", std::chrono::milliseconds(2));
    channel_->Send("more");
    channel_->Write();
  }
  EXPECT_EQ(End().text, "daemon is stopping");
}

TEST_F(ChannelTest, GarbageIsNoLoaderd) {
  for (const std::string& garbage : {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"),
                                     std::string(100, '\0'), std::string(70'000, 'x')}) {
    Call(
        [&](PeerConnection& peer) {
          peer.Raw(garbage);
          peer.WaitForEnd();
        },
        {.settings = {}, .reply_frame = 1, .mute = true});
    const Status status = End();
    EXPECT_EQ(status.code, LOADERD_UNAVAILABLE);
    EXPECT_THAT(status.text, AllOf(HasSubstr(peer_->socket()), HasSubstr("is no loaderd")));
    channel_.reset();
    peer_.reset();
  }
}

TEST_F(ChannelTest, BrokenFramesEndTheConnection) {
  // An oversized frame, DATA without a stream, a header block that is none, a window that
  // overflows.
  const std::string cases[] = {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"),
                               std::string(9, '\0'),
                               std::string("\0\0\4\1\4\0\0\0\1\xff\xff\xff\xff", 13),
                               std::string("\0\0\4\x8\0\0\0\0\0\x7f\xff\xff\xff", 13)};
  for (const std::string& garbage : cases) {
    Call([&](PeerConnection& peer) {
      peer.Request();
      peer.Raw(garbage);
      peer.WaitForEnd();
    });
    channel_->Send("x");
    const Status status = End();
    EXPECT_EQ(status.code, LOADERD_UNAVAILABLE);
    EXPECT_THAT(status.text, HasSubstr(peer_->socket()));
    channel_.reset();
    peer_.reset();
  }
}

TEST_F(ChannelTest, UnreadRepliesDoNotPileUp) {
  const std::string big = Bytes(1 << 20);
  std::atomic<int> sent{0};
  Call([&](PeerConnection& peer) {
    for (; sent < 32; ++sent) {
      peer.Reply(big);
      peer.Flush();
    }
    peer.Finish("0");
  });
  for (int i = 0; i < 100; ++i) {
    channel_->Read();
    channel_->Write();
    (void)patience_.Wait(-1, 0, "testing", std::chrono::milliseconds(1));
  }
  EXPECT_LT(sent, 20);
  for (int i = 0; i < 32; ++i) ASSERT_EQ(Next(), big);
  EXPECT_TRUE(End().ok());
}

TEST_F(ChannelTest, CancelTellsThePeer) {
  std::atomic<bool> told{false};
  Call([&](PeerConnection& peer) {
    EXPECT_FALSE(peer.Request().has_value());
    told = peer.reset_by_client() == NGHTTP2_CANCEL;
  });
  channel_->Cancel();
  channel_->Write();
  EXPECT_TRUE(Soon(told));
}

}  // namespace
}  // namespace loaderd::client
