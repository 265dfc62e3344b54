// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/descriptor_watch.h"

#include <gtest/gtest.h>

namespace loaderd::daemon {
namespace {

using Turn = DescriptorAlarm::Turn;

TEST(DescriptorAlarmTest, IsRaisedOnceAtFourFifths) {
  DescriptorAlarm alarm;
  EXPECT_EQ(alarm.Look(799, 1000), Turn::kNone);
  EXPECT_EQ(alarm.Look(800, 1000), Turn::kRaised);
  EXPECT_EQ(alarm.Look(1000, 1000), Turn::kNone);
  EXPECT_EQ(alarm.Look(800, 1000), Turn::kNone);
}

TEST(DescriptorAlarmTest, SwingAroundTheMarkIsOneEventAndAFallBeginsAnew) {
  DescriptorAlarm alarm;
  EXPECT_EQ(alarm.Look(90, 100), Turn::kRaised);
  EXPECT_EQ(alarm.Look(75, 100), Turn::kNone);
  EXPECT_EQ(alarm.Look(85, 100), Turn::kNone);
  EXPECT_EQ(alarm.Look(69, 100), Turn::kFallen);
  EXPECT_EQ(alarm.Look(10, 100), Turn::kNone);
  EXPECT_EQ(alarm.Look(80, 100), Turn::kRaised);
}

TEST(DescriptorAlarmTest, LimitThatChangesIsTakenAsItIs) {
  DescriptorAlarm alarm;
  EXPECT_EQ(alarm.Look(50, UINT64_MAX), Turn::kNone);
  EXPECT_EQ(alarm.Look(50, 60), Turn::kRaised);
  EXPECT_EQ(alarm.Look(50, UINT64_MAX), Turn::kFallen);
}

TEST(DescriptorAlarmTest, WarningHasNumbersKindsAndTheCure) {
  EXPECT_EQ(DescriptorWarning(82, 100, {{"file", 2}, {"memfd", 20}, {"socket", 60}}),
            "descriptors open=82 limit=100 percent=82 socket=60 memfd=20 file=2; LimitNOFILE= of "
            "the unit or `ulimit -n` raises it, `loaderctl fds` tells what they are");
}

}  // namespace
}  // namespace loaderd::daemon
