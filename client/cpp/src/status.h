// SPDX-License-Identifier: Apache-2.0
// Errors inside the client: a code of the C interface and a text for the user.
#pragma once

#include <string>
#include <utility>

#include "loaderd/client.h"

namespace loaderd::client {

struct [[nodiscard]] Status {
  loaderd_code code = LOADERD_OK;
  std::string text;

  bool ok() const { return code == LOADERD_OK; }
};

inline Status Ok() { return {}; }
inline Status Error(loaderd_code code, std::string text) { return {code, std::move(text)}; }

// "TEXT: No such file or directory".
Status ErrnoError(loaderd_code code, std::string text, int error);
std::string ErrnoText(int error);

// What loaderd_error() returns on this thread from now on. Never throws; returns status.code.
loaderd_code Report(const Status& status) noexcept;
const char* LastError() noexcept;

}  // namespace loaderd::client
