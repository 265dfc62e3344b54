// SPDX-License-Identifier: Apache-2.0
// The two loops that resizing spends its time in. Both round to 8 bits, as Pillow's passes do.
#pragma once

#include <cstdint>
#include <vector>

#include "server/transform/image.h"

namespace loaderd::transform {

// Weights of one axis in fixed point: output i is the sum over t < windows[i].count of input
// windows[i].first + t times weights[i * taps + t].
struct FilterTable {
  static constexpr int kFractionBits =
      32 - 8 - 2;  // 8 bits of pixel, 2 of head-room for negative lobes
  struct Window {
    int first = 0;
    int count = 0;
  };
  int taps = 0;
  std::vector<Window> windows;
  std::vector<int32_t> weights;
};

// Filters each row of `source` to table.windows.size() pixels; `out` holds them without gaps.
// Channels are 1 or 3.
void FilterRows(const Image& source, const FilterTable& table, uint8_t* out);

// Filters each column of `source` to table.windows.size() pixels; `out` holds the rows without
// gaps.
void FilterColumns(const Image& source, const FilterTable& table, uint8_t* out);

}  // namespace loaderd::transform
