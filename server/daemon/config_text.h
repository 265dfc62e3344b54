// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/text_format.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace loaderd::daemon {

// One thing wrong with a configuration; printed as "file:line: field: message".
struct ConfigError {
  std::string file;
  int line = 0;  // from 1; 0: of the file as a whole
  std::string field;
  std::string message;

  std::string ToString() const;
};

// Parses protobuf text format, telling every error and not only the first: an unknown field is told
// and passed over, a field with a wrong value is told and taken out before the next attempt.
// `message` holds what is left, and the result says where each of its fields stands; null when the
// text could not be read to its end.
std::unique_ptr<const google::protobuf::TextFormat::ParseInfoTree> ParseText(
    const std::string& file, std::string_view text, google::protobuf::Message* message,
    std::vector<ConfigError>* errors);

}  // namespace loaderd::daemon
