// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace loaderd::client {

// `text` for an error message: control bytes as \xNN, so that no name can disturb a terminal or a
// log.
std::string Printable(std::string_view text);

}  // namespace loaderd::client
