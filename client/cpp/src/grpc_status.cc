// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/grpc_status.h"

namespace loaderd::client {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string PercentDecode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const int high = HexDigit(text[i + 1]);
      const int low = HexDigit(text[i + 2]);
      if (high >= 0 && low >= 0) {
        out += static_cast<char>(high * 16 + low);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

loaderd_code ParseGrpcStatus(std::string_view value) {
  if (value.empty() || value.size() > 2) return LOADERD_UNKNOWN;
  int code = 0;
  for (const char c : value) {
    if (c < '0' || c > '9') return LOADERD_UNKNOWN;
    code = code * 10 + (c - '0');
  }
  return code <= LOADERD_UNAUTHENTICATED ? static_cast<loaderd_code>(code) : LOADERD_UNKNOWN;
}

loaderd_code CodeOfHttpStatus(int http_status) {
  switch (http_status) {
    case 400: return LOADERD_INTERNAL;
    case 401: return LOADERD_UNAUTHENTICATED;
    case 403: return LOADERD_PERMISSION_DENIED;
    case 404: return LOADERD_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504: return LOADERD_UNAVAILABLE;
    default: return LOADERD_UNKNOWN;
  }
}

loaderd_code CodeOfReset(uint32_t error_code) {
  switch (error_code) {
    case 0x7: return LOADERD_UNAVAILABLE;         // REFUSED_STREAM
    case 0x8: return LOADERD_CANCELLED;           // CANCEL
    case 0xb: return LOADERD_RESOURCE_EXHAUSTED;  // ENHANCE_YOUR_CALM
    case 0xc: return LOADERD_PERMISSION_DENIED;   // INADEQUATE_SECURITY
    default: return LOADERD_INTERNAL;
  }
}

}  // namespace loaderd::client
