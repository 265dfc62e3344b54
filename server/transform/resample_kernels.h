// SPDX-License-Identifier: Apache-2.0
// The two loops that resizing spends its time in, for the vectors of the CPU that it runs on
// (Highway chooses). Both round to 8 bits, as Pillow's passes do.
#pragma once

#include <cstdint>
#include <vector>

#include "server/base/byte_buffer.h"
#include "server/transform/image.h"

namespace loaderd::transform {

// Weights of one axis in fixed point: output i is the sum over t < windows[i].count of input
// windows[i].first + t times its weight.
struct FilterTable {
  static constexpr int kFractionBits =
      32 - 8 - 2;  // 8 bits of pixel, 2 of head-room for negative lobes
  static constexpr int kLowBits = 11;
  struct Window {
    int first = 0;
    int count = 0;
  };
  // Two weights that follow one another, each in two parts for multiplications of 16 bits:
  // weight[i] = high[i] * 2^kLowBits + low[i], where low is 0 to 2^kLowBits - 1.
  struct Pair {
    int16_t high[2] = {0, 0};
    int16_t low[2] = {0, 0};

    void Set(int i, int32_t weight) {
      high[i] = static_cast<int16_t>(weight >> kLowBits);
      low[i] = static_cast<int16_t>(weight & ((1 << kLowBits) - 1));
    }
    int32_t Weight(int i) const { return (int32_t{high[i]} * (1 << kLowBits)) + low[i]; }
  };
  int pairs = 0;  // that each window has room for; what is behind its count is 0
  std::vector<Window> windows;
  std::vector<Pair> weights;

  const Pair* Weights(int output) const {
    return weights.data() + static_cast<size_t>(output) * static_cast<size_t>(pairs);
  }
};

// begin <= i < end.
struct Range {
  int begin = 0;
  int end = 0;
  int count() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The inputs that `outputs`, which are not empty, are made of.
inline Range InputsOf(const FilterTable& table, Range outputs) {
  const FilterTable::Window& last = table.windows[static_cast<size_t>(outputs.end) - 1];
  return {table.windows[static_cast<size_t>(outputs.begin)].first, last.first + last.count};
}

// Filters each row of `source` to `outputs`; its first column is input `left` of the table, and the
// outputs' inputs are all in it. `out` holds the results without gaps. Channels are 1 or 3.
// `extra` is memory for the time of the call.
void FilterRows(const Image& source, int left, const FilterTable& table, Range outputs,
                ByteBuffer& extra, uint8_t* out);

// Likewise each column; the first row of `source` is input `top` of the table.
void FilterColumns(const Image& source, int top, const FilterTable& table, Range outputs,
                   uint8_t* out);

// Mirrors each row. `out` holds the rows without gaps.
void MirrorRows(const Image& source, uint8_t* out);

}  // namespace loaderd::transform
