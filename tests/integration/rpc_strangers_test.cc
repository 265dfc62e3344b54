// SPDX-License-Identifier: Apache-2.0
// Peers that speak nonsense or nothing, and wrong tokens: closed in time, nobody else disturbed.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/test_daemon.h"

namespace loaderd {
namespace {

using ::testing::HasSubstr;

UniqueFd ConnectTo(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// Everything the peer sends until it closes; "timeout" when it does not within `limit`.
std::string ReadToEnd(int fd, std::chrono::milliseconds limit) {
  std::string got;
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    pollfd state = {.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&state, 1, 50) <= 0) continue;
    char bytes[4096];
    const ssize_t count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count <= 0) return got;
    got.append(bytes, static_cast<size_t>(count));
  }
  return "timeout";
}

// Asks for a segment: the descriptor, or what was answered instead of one.
std::pair<UniqueFd, std::string> AskForSegment(const std::string& socket_path,
                                               const std::string& token) {
  UniqueFd fd = ConnectTo(socket_path);
  EXPECT_EQ(send(fd.get(), token.data(), token.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(token.size()));
  char first = 2;
  iovec payload = {.iov_base = &first, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(fd.get(), &message, MSG_CMSG_CLOEXEC) <= 0) return {UniqueFd(), "closed"};
  if (first != 0) return {UniqueFd(), ReadToEnd(fd.get(), std::chrono::seconds(2))};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) return {UniqueFd(), "no descriptor"};
  int segment = -1;
  std::memcpy(&segment, CMSG_DATA(header), sizeof(int));
  return {UniqueFd(segment), ""};
}

class RpcStrangersTest : public ::testing::Test {
 protected:
  RpcStrangersTest() : daemon_({.silence_limit = std::chrono::milliseconds(500)}) {
    MakeImageFolder(data_.path(), 2, 8);
  }
  TemporaryFolder data_;
  TestDaemon daemon_;
};

TEST_F(RpcStrangersTest, ATokenGivesTheSealedSegmentOnce) {
  GrpcSession session(daemon_.Connect());
  ASSERT_TRUE(session.Open(data_.path(), 4));
  const v1::Opened opened = session.Opened();
  ASSERT_EQ(opened.segment_token().size(), 16u);
  const auto [segment, refusal] = AskForSegment(daemon_.segment_socket(), opened.segment_token());
  ASSERT_TRUE(segment.ok()) << refusal;
  const int seals = fcntl(segment.get(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  struct stat facts = {};
  ASSERT_EQ(fstat(segment.get(), &facts), 0);
  EXPECT_EQ(static_cast<uint64_t>(facts.st_size), opened.segment_bytes());
  EXPECT_EQ(opened.segment_bytes(), opened.slot_bytes() * opened.slot_count());

  const auto again = AskForSegment(daemon_.segment_socket(), opened.segment_token());
  EXPECT_FALSE(again.first.ok());
  EXPECT_THAT(again.second, HasSubstr("used already"));
}

TEST_F(RpcStrangersTest, AWrongTokenGetsAReasonAndNoDescriptor) {
  const auto [segment, refusal] =
      AskForSegment(daemon_.segment_socket(), std::string("0123456789abcdef"));
  EXPECT_FALSE(segment.ok());
  EXPECT_THAT(refusal, HasSubstr("segment token"));
}

TEST_F(RpcStrangersTest, ATokenDiesWithItsSession) {
  auto channel = daemon_.Connect();
  std::string token;
  {
    GrpcSession session(channel);
    ASSERT_TRUE(session.Open(data_.path(), 4));
    token = session.Opened().segment_token();
  }
  ASSERT_TRUE(Eventually([&] { return daemon_.server().sessions() == 0; }));
  EXPECT_FALSE(AskForSegment(daemon_.segment_socket(), token).first.ok());
}

TEST_F(RpcStrangersTest, SilentPeersAreClosedInTimeAndASessionGoesOn) {
  GrpcSession session(daemon_.Connect());
  ASSERT_TRUE(session.Open(data_.path(), 4, v1::DELIVERY_WAY_INLINE));
  session.Opened();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(ConnectTo(daemon_.socket()));
  for (int i = 0; i < 30; ++i) silent.push_back(ConnectTo(daemon_.segment_socket()));
  for (const UniqueFd& fd : silent) {
    EXPECT_NE(ReadToEnd(fd.get(), std::chrono::seconds(5)), "timeout");
  }
  EXPECT_TRUE(Eventually([&] { return daemon_.descriptors().used() <= 3; }));
  session.StartEpoch(0, 2);
  v1::SessionResponse response;
  EXPECT_TRUE(session.Receive(response));
}

TEST_F(RpcStrangersTest, AnIdleSessionIsNotSilent) {
  GrpcSession session(daemon_.Connect());
  ASSERT_TRUE(session.Open(data_.path(), 4, v1::DELIVERY_WAY_INLINE));
  session.Opened();
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  session.StartEpoch(0, 2);
  v1::SessionResponse response;
  EXPECT_TRUE(session.Receive(response));
}

TEST_F(RpcStrangersTest, GarbageIsClosedAndASessionGoesOn) {
  GrpcSession session(daemon_.Connect());
  ASSERT_TRUE(session.Open(data_.path(), 4, v1::DELIVERY_WAY_INLINE));
  session.Opened();
  const std::string garbage[] = {
      std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100'000, '\xff'),
      std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string(64, '\0'),
      std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string("\xff\xff\xff\x01\x05", 5) +
          std::string(5000, 'x')};
  for (const std::string& bytes : garbage) {
    const UniqueFd fd = ConnectTo(daemon_.socket());
    [[maybe_unused]] const ssize_t sent =
        send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    EXPECT_NE(ReadToEnd(fd.get(), std::chrono::seconds(5)), "timeout");
    const UniqueFd segment = ConnectTo(daemon_.segment_socket());
    [[maybe_unused]] const ssize_t also =
        send(segment.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    EXPECT_NE(ReadToEnd(segment.get(), std::chrono::seconds(5)), "timeout");
  }
  EXPECT_TRUE(Eventually([&] { return daemon_.descriptors().used() <= 3; }));
  session.StartEpoch(0, 2);
  v1::SessionResponse response;
  EXPECT_TRUE(session.Receive(response));
}

TEST(RpcAcceptTest, PeersPastTheDescriptorBudgetWaitAndAreServedWhenOneLeaves) {
  TemporaryFolder data;
  MakeImageFolder(data.path(), 1, 4);
  TestDaemon daemon({.descriptors = 5});  // two connections and a segment
  auto first = std::make_unique<GrpcSession>(daemon.Connect());
  ASSERT_TRUE(first->Open(data.path(), 1, v1::DELIVERY_WAY_INLINE));
  auto second = std::make_unique<GrpcSession>(daemon.Connect());
  const UniqueFd third = ConnectTo(daemon.socket());
  EXPECT_TRUE(Eventually([&] { return daemon.descriptors().used() >= 4; }));
  first.reset();
  second.reset();
  GrpcSession fourth(daemon.Connect());
  ASSERT_TRUE(fourth.Open(data.path(), 1, v1::DELIVERY_WAY_INLINE));
  EXPECT_EQ(fourth.Opened().num_samples(), 4u);
}

}  // namespace
}  // namespace loaderd
