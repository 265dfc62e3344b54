// SPDX-License-Identifier: Apache-2.0
#include "server/transform/resample_kernels.h"

#include <algorithm>

namespace loaderd::transform {
namespace {
constexpr int32_t kHalf = 1 << (FilterTable::kFractionBits - 1);
constexpr size_t kBlock = 512;  // sums of a part of a row stay in the first cache

uint8_t ToByte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> FilterTable::kFractionBits, 0, 255));
}

void FilterGreyRow(const uint8_t* row, const FilterTable& table, uint8_t* out) {
  const int32_t* weights = table.weights.data();
  for (const FilterTable::Window& window : table.windows) {
    const uint8_t* in = row + window.first;
    int32_t sum = kHalf;
    for (int t = 0; t < window.count; ++t) sum += in[t] * weights[t];
    *out++ = ToByte(sum);
    weights += table.taps;
  }
}

void FilterRgbRow(const uint8_t* row, const FilterTable& table, uint8_t* out) {
  const int32_t* weights = table.weights.data();
  for (const FilterTable::Window& window : table.windows) {
    const uint8_t* in = row + size_t{3} * static_cast<size_t>(window.first);
    int32_t red = kHalf, green = kHalf, blue = kHalf;
    for (int t = 0; t < window.count; ++t, in += 3) {
      red += in[0] * weights[t];
      green += in[1] * weights[t];
      blue += in[2] * weights[t];
    }
    *out++ = ToByte(red);
    *out++ = ToByte(green);
    *out++ = ToByte(blue);
    weights += table.taps;
  }
}
}  // namespace

void FilterRows(const Image& source, const FilterTable& table, uint8_t* out) {
  const size_t out_bytes = table.windows.size() * static_cast<size_t>(source.channels);
  for (int y = 0; y < source.height; ++y, out += out_bytes) {
    if (source.channels == 1) {
      FilterGreyRow(source.Row(y), table, out);
    } else {
      FilterRgbRow(source.Row(y), table, out);
    }
  }
}

void FilterColumns(const Image& source, const FilterTable& table, uint8_t* out) {
  const size_t row_bytes = source.RowBytes();
  const int32_t* weights = table.weights.data();
  for (const FilterTable::Window& window : table.windows) {
    for (size_t begin = 0; begin < row_bytes; begin += kBlock) {
      const size_t count = std::min(kBlock, row_bytes - begin);
      int32_t sums[kBlock];
      std::fill_n(sums, count, kHalf);
      for (int t = 0; t < window.count; ++t) {
        const uint8_t* in = source.Row(window.first + t) + begin;
        const int32_t weight = weights[t];
        for (size_t x = 0; x < count; ++x) sums[x] += in[x] * weight;
      }
      for (size_t x = 0; x < count; ++x) out[begin + x] = ToByte(sums[x]);
    }
    out += row_bytes;
    weights += table.taps;
  }
}

}  // namespace loaderd::transform
