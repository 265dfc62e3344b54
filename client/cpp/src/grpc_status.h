// SPDX-License-Identifier: Apache-2.0
// How a gRPC call's end is read off HTTP/2: the rules of gRPC's "PROTOCOL-HTTP2" and
// "http-grpc-status-mapping" documents.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "client/cpp/src/status.h"

namespace loaderd::client {

// Percent sequences to bytes; malformed ones pass through as they are.
std::string PercentDecode(std::string_view text);
// The value of a grpc-status header. kUnknown for what is no code.
loaderd_code ParseGrpcStatus(std::string_view value);
// Of a reply that carries no grpc-status.
loaderd_code CodeOfHttpStatus(int http_status);
// Of an RST_STREAM frame's error code.
loaderd_code CodeOfReset(uint32_t error_code);

}  // namespace loaderd::client
