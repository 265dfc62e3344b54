// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>

#include "tests/support/status_matchers.h"

namespace loaderd {
namespace {

using testing::StartsWith;

TEST(PrintableTest, PrintableTextStaysAsItIs) {
  for (const char* text :
       {"", "plain /a b", "\\", "\"'", "gr\xc3\xbc\xc3\x9f", "\xe6\x97\xa5\xe6\x9c\xac",
        "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf", "\xef\xbf\xbf"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(Printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(Printable("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(Printable("\x7f"), "\\x7f");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(PrintableTest, BytesThatAreNoUtf8AreEscapedOneByOne) {
  const std::pair<const char*, const char*> cases[] = {
      {"\xff", "\\xff"},
      {"\x80", "\\x80"},                             // a tail without a lead
      {"\xc3", "\\xc3"},                             // cut short
      {"\xe6\x97", "\\xe6\\x97"},                    // likewise
      {"\xf0\x9f\x98", "\\xf0\\x9f\\x98"},           // likewise
      {"\xc3(", "\\xc3("},                           // no tail
      {"\xc0\xaf", "\\xc0\\xaf"},                    // overlong
      {"\xc1\xbf", "\\xc1\\xbf"},                    // overlong
      {"\xe0\x80\xaf", "\\xe0\\x80\\xaf"},           // overlong
      {"\xf0\x8f\xbf\xbf", "\\xf0\\x8f\\xbf\\xbf"},  // overlong
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // a surrogate
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // above U+10FFFF
      {"\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80"},  // likewise
      {"\xc3\xbc\xff\xc3\xbc", "\xc3\xbc\\xff\xc3\xbc"},
  };
  for (const auto& [text, printed] : cases) EXPECT_EQ(Printable(text), printed);
}

TEST(PrintableTest, IsPrintableItself) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(Printable(Printable(all)), Printable(all));
}

TEST(StatusTest, ErrnoSaysOperandReasonAndKind) {
  EXPECT_THAT(ErrnoStatus(ENOENT, "/a"),
              StatusIs(absl::StatusCode::kNotFound, StartsWith("/a: No such file")));
  EXPECT_THAT(ErrnoStatus(EACCES, "/a"),
              StatusIs(absl::StatusCode::kPermissionDenied, StartsWith("/a: ")));
  EXPECT_THAT(ErrnoStatus(EMFILE, "/a"),
              StatusIs(absl::StatusCode::kResourceExhausted, StartsWith("/a: ")));
}

TEST(StatusTest, ContextGoesBeforeAnErrorAndLeavesOk) {
  EXPECT_THAT(WithContext(absl::NotFoundError("x"), "y"),
              StatusIs(absl::StatusCode::kNotFound, "y: x"));
  EXPECT_THAT(WithContext(absl::OkStatus(), "y"), IsOk());
}

Status Twice(const StatusOr<int>& value, int& out) {
  ASSIGN_OR_RETURN(const int got, value);
  RETURN_IF_ERROR(got < 0 ? absl::InvalidArgumentError("negative") : absl::OkStatus());
  out = 2 * got;
  return absl::OkStatus();
}

TEST(StatusTest, MacrosPassErrorsOnAndValuesIn) {
  int out = 0;
  EXPECT_THAT(Twice(21, out), IsOk());
  EXPECT_EQ(out, 42);
  EXPECT_THAT(Twice(absl::AbortedError("a"), out), StatusIs(absl::StatusCode::kAborted, "a"));
  EXPECT_THAT(Twice(-1, out), StatusIs(absl::StatusCode::kInvalidArgument, "negative"));
  EXPECT_EQ(out, 42);
}

}  // namespace
}  // namespace loaderd
