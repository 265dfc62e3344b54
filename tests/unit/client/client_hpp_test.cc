// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <optional>
#include <stdexcept>

#include "loaderd/client.hpp"
#include "tests/unit/client/session_fixture.h"

namespace loaderd::client {
namespace {

using testing::HasSubstr;

class ClientHppTest : public SessionFixture {};

TEST_F(ClientHppTest, SessionAndBatchOwnAndErrorsAreThrown) {
  StartDaemon();
  const loaderd_open_options options = OpenOptions();
  std::optional<loaderd::Batch> last;
  {
    loaderd::Session session("{}", options);
    session.StartEpoch(0);
    uint64_t steps = 0;
    while (std::optional<loaderd::Batch> batch = session.Next()) {
      EXPECT_EQ(batch->step(), steps++);
      EXPECT_EQ(batch->Field<uint8_t>(0).size(), 4000u);
      EXPECT_EQ(batch->Field<int64_t>(1).size(), 4u);
      EXPECT_THROW((void)batch->Field<uint8_t>(2), std::out_of_range);
      last = std::move(batch);
    }
    EXPECT_EQ(steps, 10u);
    EXPECT_FALSE(last->copied());
  }
  EXPECT_EQ(std::to_integer<int>(*last->data()), 10);
  last.reset();
  EXPECT_TRUE(daemon_->EndsWithin(kSoon));
  daemon_.reset();
  try {
    loaderd::Session session("{}", options);
    FAIL() << "opened without a daemon";
  } catch (const loaderd::Error& error) {
    EXPECT_EQ(error.code(), LOADERD_UNAVAILABLE);
    EXPECT_THAT(error.what(), HasSubstr("d.sock"));
  }
}

}  // namespace
}  // namespace loaderd::client
