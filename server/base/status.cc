// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace loaderd {

Status ErrnoStatus(int error, std::string_view operand) {
  return absl::ErrnoToStatus(error, std::string(operand));
}

Status WithContext(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  return Status(status.code(), absl::StrCat(std::string(context), ": ", status.message()));
}

namespace {

// Length of the well-formed UTF-8 sequence at the start of `text` (Unicode 15, table 3-7), or 0.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto tail = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!tail(1) || !tail(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;
    if (lead == 0xED && byte(1) > 0x9F) return 0;
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length > 1) {
      out.append(text.substr(0, length));
      text.remove_prefix(length);
    } else if (length == 1 && text[0] >= 0x20 && text[0] != 0x7F) {
      out.push_back(text[0]);
      text.remove_prefix(1);
    } else {
      out += absl::CHexEscape(std::string(text.substr(0, 1)));
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace loaderd
