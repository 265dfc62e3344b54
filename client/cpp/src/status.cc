// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/status.h"

#include <cstring>
#include <exception>

namespace loaderd::client {
namespace {

thread_local std::string last_error;
thread_local bool last_error_lost = false;

}  // namespace

std::string ErrnoText(int error) {
  char buffer[128];
  return strerror_r(error, buffer, sizeof buffer);
}

Status ErrnoError(loaderd_code code, std::string text, int error) {
  return Error(code, std::move(text) + ": " + ErrnoText(error));
}

loaderd_code Report(const Status& status) noexcept {
  try {
    last_error = status.text;
    last_error_lost = false;
  } catch (const std::exception&) {
    last_error_lost = true;
  }
  return status.code;
}

const char* LastError() noexcept {
  return last_error_lost ? "out of memory (the error's text is lost)" : last_error.c_str();
}

}  // namespace loaderd::client
