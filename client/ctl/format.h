// SPDX-License-Identifier: Apache-2.0
// Text for people: numbers with units, aligned tables.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace loaderd::ctl {

std::string FormatCount(uint64_t value);    // 1,234,567
std::string FormatBytes(uint64_t bytes);    // 1.5 MiB
std::string FormatSeconds(double seconds);  // 12.3 s, 4 min 5 s, 3 h 20 min, 2 d 4 h
// Control characters as '?': names come from other users and go to a terminal.
std::string ForTerminal(std::string_view text);

// Columns as wide as their widest cell; a name with a leading '>' aligns its column to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> names);
  void Add(std::vector<std::string> row);  // as many cells as there are columns
  void Print(std::FILE* to) const;

 private:
  std::vector<std::string> names_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace loaderd::ctl
