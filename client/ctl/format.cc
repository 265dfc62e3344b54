// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/format.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace loaderd::ctl {
namespace {

// Characters on a screen, of UTF-8: continuation bytes take no room.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string FormatCount(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string FormatBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatSeconds(double seconds) {
  if (!(seconds >= 0)) return "-";
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<uint64_t>(seconds);
  if (whole < 3600) return absl::StrFormat("%d min %d s", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%d h %d min", whole / 3600, whole / 60 % 60);
  return absl::StrFormat("%d d %d h", whole / 86400, whole / 3600 % 24);
}

std::string ForTerminal(std::string_view text) {
  std::string shown(text);
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return shown;
}

Table::Table(std::vector<std::string> names) : names_(std::move(names)) {
  for (std::string& name : names_) {
    right_.push_back(name.starts_with('>'));
    if (right_.back()) name.erase(0, 1);
  }
}

void Table::Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

void Table::Print(std::FILE* to) const {
  std::vector<size_t> widths;
  for (size_t column = 0; column < names_.size(); ++column) {
    widths.push_back(Width(names_[column]));
    for (const auto& row : rows_) widths[column] = std::max(widths[column], Width(row[column]));
  }
  const auto line = [&](const std::vector<std::string>& row) {
    std::string text;
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - Width(row[column]), ' ');
      if (column > 0) text += "  ";
      text += right_[column] ? padding + row[column] : row[column] + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    std::fprintf(to, "%s\n", text.c_str());
  };
  line(names_);
  for (const auto& row : rows_) line(row);
}

}  // namespace loaderd::ctl
