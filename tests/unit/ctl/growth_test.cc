// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace loaderd::ctl {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

Snapshot With(std::map<std::pair<std::string, std::string>, uint64_t> targets) {
  Snapshot snapshot;
  for (const auto& [what, count] : targets) snapshot.kinds[what.first] += count;
  snapshot.targets = std::move(targets);
  return snapshot;
}

auto Is(const char* kind, const char* target, uint64_t open, int64_t growth) {
  return AllOf(Field(&Grown::kind, kind), Field(&Grown::target, target), Field(&Grown::open, open),
               Field(&Grown::growth, growth));
}

TEST(GrowthTest, NothingGrewWhereNothingChanged) {
  const Snapshot snapshot = With({{{"file", "/a"}, 2}, {{"pipe", "pipe"}, 1}});
  EXPECT_THAT(KindGrowth(snapshot, snapshot), IsEmpty());
  EXPECT_THAT(TargetGrowth(snapshot, snapshot), IsEmpty());
  EXPECT_EQ(snapshot.open(), 3u);
}

TEST(GrowthTest, MostGrownComesFirstAndWhatWasClosedIsNoTarget) {
  const Snapshot before =
      With({{{"file", "/a"}, 1}, {{"file", "/gone"}, 3}, {{"pipe", "pipe"}, 4}});
  const Snapshot after = With({{{"file", "/a"}, 2},
                               {{"file", "/b"}, 7},
                               {{"file", "/c"}, 1},
                               {{"pipe", "pipe"}, 2},
                               {{"socket", "tcp"}, 9}});
  EXPECT_THAT(KindGrowth(before, after),
              ElementsAre(Is("socket", "", 9, 9), Is("file", "", 10, 6), Is("pipe", "", 2, -2)));
  EXPECT_THAT(TargetGrowth(before, after),
              ElementsAre(Is("socket", "tcp", 9, 9), Is("file", "/b", 7, 7), Is("file", "/a", 2, 1),
                          Is("file", "/c", 1, 1)));
}

TEST(GrowthTest, KindThatHasGoneAltogetherIsTold) {
  EXPECT_THAT(KindGrowth(With({{{"memfd", "memfd:x"}, 2}}), With({})),
              ElementsAre(Is("memfd", "", 0, -2)));
}

}  // namespace
}  // namespace loaderd::ctl
