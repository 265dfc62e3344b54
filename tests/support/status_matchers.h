// SPDX-License-Identifier: Apache-2.0
// EXPECT_THAT(status_or_status_or, IsOk()); EXPECT_THAT(..., StatusIs(absl::StatusCode::kNotFound,
// HasSubstr("/data"))); ASSERT_OK_AND_ASSIGN(Job job, ParseJob(spec));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "server/base/status.h"

namespace loaderd {

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << "whose status is " << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P(StatusIs, code, absl::StatusCodeToString(code)) {
  *result_listener << "whose status is " << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code;
}

// `message` is a text, which must be equal, or a matcher of texts.
MATCHER_P2(StatusIs, code, message,
           absl::StatusCodeToString(code) + " with a message that " +
               testing::DescribeMatcher<std::string>(message)) {
  *result_listener << "whose status is " << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         testing::Matches(testing::SafeMatcherCast<const std::string&>(message))(
             std::string(StatusOf(arg).message()));
}

}  // namespace loaderd

#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL_(LOADERD_CONCAT_(status_or_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  ASSERT_TRUE(tmp.ok()) << tmp.status();           \
  lhs = *std::move(tmp)
