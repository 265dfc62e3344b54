// SPDX-License-Identifier: Apache-2.0
#include "server/plan/json_error.h"

#include <google/protobuf/descriptor.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace loaderd::plan {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

constexpr size_t kMaxQuoted = 200;
constexpr std::string_view kNoField = ": Cannot find field.";

std::string Quoted(std::string_view text) {
  if (text.size() <= kMaxQuoted) return Printable(text);
  return absl::StrCat(Printable(text.substr(0, kMaxQuoted)), "...");
}

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::string Whole(std::string_view prefix) { return std::string(prefix.empty() ? "job" : prefix); }

std::string Join(std::string_view prefix, std::string_view path) {
  std::string joined(prefix);
  if (!prefix.empty() && !path.empty()) joined.push_back('.');
  return joined.append(path);
}

const FieldDescriptor* Find(const Descriptor& message, std::string_view name) {
  const std::string key(name);
  const FieldDescriptor* field = message.FindFieldByName(key);
  return field != nullptr ? field : message.FindFieldByCamelcaseName(key);
}

// The message at `path` ("transform[1].normalize"), or null where something else is. JSON may spell
// names in either way; `canonical` gets the path in the proto's spelling.
const Descriptor* MessageAt(const Descriptor& root, std::string_view path, std::string& canonical) {
  const Descriptor* message = &root;
  if (path.empty()) return message;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(std::string(path), '.'))) {
    const size_t bracket = part.find('[');
    const FieldDescriptor* field =
        message == nullptr ? nullptr : Find(*message, part.substr(0, bracket));
    if (field == nullptr) {
      canonical = path;
      return nullptr;
    }
    const std::string rest = bracket == part.npos ? "" : part.substr(bracket);
    canonical = Join(canonical, absl::StrCat(field->name(), rest));
    message = field->message_type();
  }
  return message;
}

std::string EnumNames(const EnumDescriptor& type) {
  std::string names;
  for (int i = 1; i < type.value_count(); ++i) {
    absl::StrAppend(&names, i == 1 ? "" : ", ", type.value(i)->name());
  }
  return names;
}

// What a value of protobuf's type name `type` must be.
std::string Wanted(const Descriptor& root, std::string_view type) {
  if (type == "TYPE_INT64") return "an integer";
  if (type == "TYPE_UINT64") return "an integer, 0 to 18446744073709551615";
  if (type == "TYPE_DOUBLE") return "a number";
  if (type == "TYPE_BOOL") return "true or false";
  if (type == "TYPE_STRING") return "a string";
  if (type == "TYPE_BYTES") return "a string in base64";
  if (TakePrefix(type, "type.googleapis.com/")) {
    const std::string name(type);
    const auto* pool = root.file()->pool();
    if (const EnumDescriptor* found = pool->FindEnumTypeByName(name)) {
      return absl::StrCat("one of ", EnumNames(*found));
    }
    if (const Descriptor* found = pool->FindMessageTypeByName(name)) {
      return absl::StrCat("an object with the fields of ", found->name(), " (", FieldNames(*found),
                          ")");
    }
  }
  return absl::StrCat("of type ", Quoted(type));
}

Status Unknown(const Descriptor& root, std::string_view prefix, std::string_view path,
               std::string_view name) {
  std::string canonical;
  const Descriptor* message = MessageAt(root, path, canonical);
  const bool step = message != nullptr && message->name() == "TransformStep";
  std::string text = absl::StrCat(Quoted(Join(prefix, Join(canonical, name))), ": no such ",
                                  step ? "transform" : "field");
  if (message != nullptr) {
    const std::string names = FieldNames(*message);
    absl::StrAppend(&text, names.empty() ? "; it takes none" : "; there are: ", names);
  }
  return absl::InvalidArgumentError(text);
}

// `value_and_type`: "VALUE for type TYPE".
Status WrongValue(const Descriptor& root, std::string_view prefix, std::string_view path,
                  std::string_view value_and_type) {
  std::string canonical;
  MessageAt(root, path, canonical);
  const std::string where = Quoted(Join(prefix, canonical));
  constexpr std::string_view kForType = " for type ";
  const size_t split = value_and_type.rfind(kForType);
  if (split == value_and_type.npos) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", Quoted(value_and_type)));
  }
  const std::string_view value = value_and_type.substr(0, split);
  const std::string_view type = value_and_type.substr(split + kForType.size());
  if (type == "oneof") {
    // Either a field given twice or two of which only one may be: the last quoted name is the
    // second.
    const std::vector<std::string> parts = absl::StrSplit(std::string(value), '\'');
    const std::string name = parts.size() >= 4 ? parts[3] : "";
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(Join(prefix, Join(canonical, name))),
                     ": given twice, or together with another field that excludes it"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": must be ", Wanted(root, type), ", is ", Quoted(value)));
}

}  // namespace

std::string FieldNames(const Descriptor& message) {
  std::string names;
  for (int i = 0; i < message.field_count(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", message.field(i)->name());
  }
  return names;
}

Status JsonError(const Descriptor& root, std::string_view prefix, std::string_view parser_error) {
  std::string_view text = parser_error;
  std::string_view path;
  if (TakePrefix(text, "(")) {
    const size_t close = text.find(')');
    if (close != text.npos) {
      path = text.substr(0, close);
      text.remove_prefix(close + 1);
    }
  }
  std::string_view rest = text;
  if (TakePrefix(rest, ": invalid value ")) return WrongValue(root, prefix, path, rest);
  rest = text;
  if (rest.ends_with(kNoField)) {
    rest.remove_suffix(kNoField.size());
    TakePrefix(rest, " ");
    return Unknown(root, prefix, path, rest);
  }
  if (parser_error.find("Root element must be a message") != parser_error.npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(Whole(prefix), ": must be a JSON object of ", root.name()));
  }
  // A fault of syntax: what, then the place, then a line with a caret.
  const std::vector<std::string> lines = absl::StrSplit(std::string(parser_error), '\n');
  const std::string near = lines.size() > 1 ? lines[1] : "";
  return absl::InvalidArgumentError(
      absl::StrCat(Whole(prefix), ": is not JSON: ", Quoted(lines[0]),
                   near.empty() ? "" : absl::StrCat(" Near: ", Quoted(near))));
}

}  // namespace loaderd::plan
