// SPDX-License-Identifier: Apache-2.0
// Errors are absl::Status values. Each message names its operand (a path, a field, a limit); the
// caller's fault is kInvalidArgument with the field's path, a missing right kPermissionDenied, a
// used-up limit kResourceExhausted with limit, asked and left, the environment kUnavailable with
// the cure.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace loaderd {

using absl::Status;
using absl::StatusOr;

// `error` is an errno value; `operand` says what was done to what, e.g. "open /data/a.jpg".
Status ErrnoStatus(int error, std::string_view operand);

// The status's text. A string, since abseil's own string_view is a type of its own in some builds
// and std::string_view in others; for the same reason a std::string_view goes into absl::StrCat as
// a std::string.
inline std::string MessageOf(const Status& status) { return std::string(status.message()); }

// The same status with `context: ` before its message; OK stays OK.
Status WithContext(const Status& status, std::string_view context);

// `text` as printable UTF-8: control characters and bytes that are not UTF-8 come out as C escapes.
// Use it on every file name that goes into a message: names are bytes, and protobuf strings must be
// UTF-8.
std::string Printable(std::string_view text);

}  // namespace loaderd

#define LOADERD_CONCAT_INNER_(a, b) a##b
#define LOADERD_CONCAT_(a, b) LOADERD_CONCAT_INNER_(a, b)

#define RETURN_IF_ERROR(expr)                             \
  do {                                                    \
    if (::absl::Status status_ = (expr); !status_.ok()) { \
      return status_;                                     \
    }                                                     \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL_(LOADERD_CONCAT_(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr)   \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = *std::move(tmp)
