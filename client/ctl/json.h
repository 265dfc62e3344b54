// SPDX-License-Identifier: Apache-2.0
// JSON for scripts: protobuf messages with their field names, defaults printed, and every integer a
// number. (protobuf's own JSON turns 64-bit integers into strings, which shells and jq do not count
// with.)
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace google::protobuf {
class Message;
}

namespace loaderd::ctl {

std::string JsonQuote(std::string_view text);
std::string JsonNumber(double value);  // null where it is not finite
std::string JsonOf(const google::protobuf::Message& message);

// {"name": value, ...} in the order of Add.
class JsonObject {
 public:
  JsonObject& Add(std::string_view name, std::string_view text) {
    return AddJson(name, JsonQuote(text));
  }
  JsonObject& Add(std::string_view name, const char* text) {
    return AddJson(name, JsonQuote(text));
  }
  JsonObject& Add(std::string_view name, bool value) {
    return AddJson(name, value ? "true" : "false");
  }
  JsonObject& Add(std::string_view name, double value) { return AddJson(name, JsonNumber(value)); }
  template <std::integral T>
  JsonObject& Add(std::string_view name, T value) {
    return AddJson(name, std::to_string(value));
  }
  JsonObject& AddJson(std::string_view name, std::string_view json);

  std::string text() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

}  // namespace loaderd::ctl
