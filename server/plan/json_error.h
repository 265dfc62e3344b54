// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "server/base/status.h"

namespace google::protobuf {
class Descriptor;
}

namespace loaderd::plan {

// kInvalidArgument saying what is wrong with the JSON form of a `root` message, where
// `parser_error` is what protobuf's JSON parser (3.21) said of it: the field's path after `prefix`,
// and the fields, transforms or values that exist in its place. Words that it does not know are
// passed on as they are. Printable, of bounded length.
Status JsonError(const google::protobuf::Descriptor& root, std::string_view prefix,
                 std::string_view parser_error);

// "resize, center_crop, ...": the fields of a message, in their order.
std::string FieldNames(const google::protobuf::Descriptor& message);

}  // namespace loaderd::plan
