// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>

namespace loaderd::ctl {

// A bar on standard error; nothing where that is no terminal.
class Progress {
 public:
  // `seconds`: the expected time, told in the bar; 0 where it is unknown.
  explicit Progress(double seconds);
  void Show(double part, std::string_view text);  // part: 0 to 1; drawn at most ten times a second
  void Clear();

 private:
  bool on_terminal_;
  double seconds_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace loaderd::ctl
