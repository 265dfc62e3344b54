// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/json.h"

#include <google/protobuf/message.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

namespace loaderd::ctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// One value of a field: the only one, or the `at`-th of a repeated one.
std::string ValueOf(const Message& message, const FieldDescriptor* field, int at) {
  const Reflection* reflection = message.GetReflection();
  const bool repeated = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return std::to_string(repeated ? reflection->GetRepeatedInt32(message, field, at)
                                     : reflection->GetInt32(message, field));
    case FieldDescriptor::CPPTYPE_INT64:
      return std::to_string(repeated ? reflection->GetRepeatedInt64(message, field, at)
                                     : reflection->GetInt64(message, field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return std::to_string(repeated ? reflection->GetRepeatedUInt32(message, field, at)
                                     : reflection->GetUInt32(message, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return std::to_string(repeated ? reflection->GetRepeatedUInt64(message, field, at)
                                     : reflection->GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return JsonNumber(repeated ? reflection->GetRepeatedDouble(message, field, at)
                                 : reflection->GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return JsonNumber(repeated ? reflection->GetRepeatedFloat(message, field, at)
                                 : reflection->GetFloat(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return (repeated ? reflection->GetRepeatedBool(message, field, at)
                       : reflection->GetBool(message, field))
                 ? "true"
                 : "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return JsonQuote((repeated ? reflection->GetRepeatedEnum(message, field, at)
                                 : reflection->GetEnum(message, field))
                           ->name());
    case FieldDescriptor::CPPTYPE_STRING:
      return JsonQuote(repeated ? reflection->GetRepeatedString(message, field, at)
                                : reflection->GetString(message, field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return JsonOf(repeated ? reflection->GetRepeatedMessage(message, field, at)
                             : reflection->GetMessage(message, field));
  }
  return "null";
}

}  // namespace

std::string JsonQuote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string JsonNumber(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

std::string JsonOf(const Message& message) {
  JsonObject object;
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (!field->is_repeated()) {
      object.AddJson(field->name(), ValueOf(message, field, 0));
      continue;
    }
    std::string list;
    for (int at = 0; at < message.GetReflection()->FieldSize(message, field); ++at) {
      list += (at == 0 ? "" : ",") + ValueOf(message, field, at);
    }
    object.AddJson(field->name(), "[" + list + "]");
  }
  return object.text();
}

JsonObject& JsonObject::AddJson(std::string_view name, std::string_view json) {
  if (!members_.empty()) members_ += ',';
  members_.append(JsonQuote(name)).append(":").append(json);
  return *this;
}

}  // namespace loaderd::ctl
