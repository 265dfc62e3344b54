// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "client/ctl/format.h"

namespace loaderd::ctl {
namespace {

constexpr int kWidth = 30;
constexpr auto kLeastBetween = std::chrono::milliseconds(100);

}  // namespace

Progress::Progress(double seconds) : on_terminal_(isatty(STDERR_FILENO) == 1), seconds_(seconds) {}

void Progress::Show(double part, std::string_view text) {
  const auto now = std::chrono::steady_clock::now();
  if (!on_terminal_ || now - last_ < kLeastBetween) return;
  last_ = now;
  part = std::clamp(part, 0.0, 1.0);
  const auto filled = static_cast<size_t>(part * kWidth);
  std::string left;
  if (seconds_ > 0) left = ", " + FormatSeconds((1 - part) * seconds_) + " left";
  std::fprintf(stderr, "\r[%s%s] %3d%%  %.*s%s\x1b[K", std::string(filled, '#').c_str(),
               std::string(kWidth - filled, '.').c_str(), static_cast<int>(part * 100),
               static_cast<int>(text.size()), text.data(), left.c_str());
}

void Progress::Clear() {
  if (on_terminal_) std::fprintf(stderr, "\r\x1b[K");
}

}  // namespace loaderd::ctl
