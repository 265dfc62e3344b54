// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/grpc_status.h"

#include <gtest/gtest.h>

namespace loaderd::client {
namespace {

TEST(PercentDecodeTest, SequencesBecomeBytes) {
  EXPECT_EQ(PercentDecode("a%20b%0A%c3%BC"), "a b\n\xc3\xbc");
}

TEST(PercentDecodeTest, MalformedSequencesPassThrough) {
  for (const char* const text : {"100%", "%2", "%zz", "%", "50%!a", "%%", "%g0"}) {
    EXPECT_EQ(PercentDecode(text), text);
  }
  EXPECT_EQ(PercentDecode("%%41"), "%A");
}

TEST(ParseGrpcStatusTest, OnlyKnownNumbersAreCodes) {
  EXPECT_EQ(ParseGrpcStatus("0"), LOADERD_OK);
  EXPECT_EQ(ParseGrpcStatus("16"), LOADERD_UNAUTHENTICATED);
  for (const char* const text : {"", "17", "-1", "x", "007", "1 ", "99999999999999999999"}) {
    EXPECT_EQ(ParseGrpcStatus(text), LOADERD_UNKNOWN) << text;
  }
}

TEST(CodeOfResetTest, FollowsGrpcsTable) {
  EXPECT_EQ(CodeOfReset(0x0), LOADERD_INTERNAL);
  EXPECT_EQ(CodeOfReset(0x7), LOADERD_UNAVAILABLE);
  EXPECT_EQ(CodeOfReset(0x8), LOADERD_CANCELLED);
  EXPECT_EQ(CodeOfReset(0xb), LOADERD_RESOURCE_EXHAUSTED);
  EXPECT_EQ(CodeOfReset(0xc), LOADERD_PERMISSION_DENIED);
  EXPECT_EQ(CodeOfReset(0xffff), LOADERD_INTERNAL);
}

TEST(CodeOfHttpStatusTest, FollowsGrpcsTable) {
  EXPECT_EQ(CodeOfHttpStatus(404), LOADERD_UNIMPLEMENTED);
  EXPECT_EQ(CodeOfHttpStatus(403), LOADERD_PERMISSION_DENIED);
  EXPECT_EQ(CodeOfHttpStatus(503), LOADERD_UNAVAILABLE);
  EXPECT_EQ(CodeOfHttpStatus(500), LOADERD_UNKNOWN);
}

}  // namespace
}  // namespace loaderd::client
