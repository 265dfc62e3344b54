// SPDX-License-Identifier: Apache-2.0
// Checks of single fields of a JobSpec; each error begins with the field's path.
#pragma once

#include <google/protobuf/generated_enum_reflection.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace loaderd::plan {

inline Status Invalid(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

inline std::string Sub(const std::string& path, const std::string& field) {
  return absl::StrCat(path, ".", field);
}
inline std::string At(const std::string& path, int i) { return absl::StrCat(path, "[", i, "]"); }

inline StatusOr<int> InRange(const std::string& path, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return static_cast<int>(value);
  return Invalid(path, absl::StrCat("must be ", least, " to ", most, ", is ", value));
}

inline Status CheckRange(const std::string& path, double value, double least, double most) {
  if (!std::isfinite(value)) return Invalid(path, absl::StrCat("must be finite, is ", value));
  if (value >= least && value <= most) return absl::OkStatus();
  return Invalid(path, absl::StrCat("must be ", least, " to ", most, ", is ", value));
}

// Proto's enums are open: any number may stand in a message.
template <typename Proto, typename Ours>
StatusOr<Ours> Pick(const std::string& path, Proto value, Ours unset,
                    std::initializer_list<std::pair<Proto, Ours>> table) {
  if (value == Proto{}) return unset;
  for (const auto& [from, to] : table) {
    if (from == value) return to;
  }
  std::string names;
  const auto* type = google::protobuf::GetEnumDescriptor<Proto>();
  for (const auto& entry : table) {
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    type->FindValueByNumber(entry.first)->name());
  }
  return Invalid(path, absl::StrCat("must be one of ", names, ", is ", static_cast<int>(value)));
}

}  // namespace loaderd::plan
