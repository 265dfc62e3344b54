// SPDX-License-Identifier: Apache-2.0
// Sums are exact in 32 bits: a weight of 22 bits is split in two, each half is multiplied in 16
// bits and two taps are added at once; high << 11 plus low is Pillow's own sum. Rows are filtered
// as columns: some rows at a time are turned on their side, so that one instruction works on all of
// them, and the results are turned back.
#include "server/transform/resample_kernels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

// Highway compiles what lies between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE once for each
// target. Vectors whose size is not known here do not fit the turning of rows.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/transform/resample_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace loaderd::transform {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// One number at a time: for what has no vectors, and what the others are tested against.

template <class Load>
uint8_t Weigh(const FilterTable::Pair* weights, int count, const Load& load) {
  int32_t sum = 1 << (FilterTable::kFractionBits - 1);
  for (int t = 0; t < count; ++t) sum += load(t) * weights[t / 2].Weight(t % 2);
  return static_cast<uint8_t>(std::clamp(sum >> FilterTable::kFractionBits, 0, 255));
}

void FilterColumns(const Image& source, int top, const FilterTable& table, Range outputs,
                   uint8_t* out) {
  for (int i = outputs.begin; i < outputs.end; ++i) {
    const FilterTable::Window& window = table.windows[static_cast<size_t>(i)];
    for (size_t x = 0; x < source.RowBytes(); ++x) {
      *out++ = Weigh(table.Weights(i), window.count,
                     [&](int t) { return source.Row(window.first - top + t)[x]; });
    }
  }
}

void FilterRows(const Image& source, int left, const FilterTable& table, Range outputs, ByteBuffer&,
                uint8_t* out) {
  for (int y = 0; y < source.height; ++y) {
    for (int i = outputs.begin; i < outputs.end; ++i) {
      const FilterTable::Window& window = table.windows[static_cast<size_t>(i)];
      const uint8_t* const in = source.Row(y) + (window.first - left) * source.channels;
      for (int c = 0; c < source.channels; ++c) {
        *out++ = Weigh(table.Weights(i), window.count,
                       [&](int t) { return in[t * source.channels + c]; });
      }
    }
  }
}

void MirrorRows(const Image& source, uint8_t* out) {
  const auto channels = static_cast<size_t>(source.channels);
  for (int y = 0; y < source.height; ++y) {
    for (int x = source.width - 1; x >= 0; --x, out += channels) {
      std::memcpy(out, source.Row(y) + static_cast<size_t>(x) * channels, channels);
    }
  }
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::ScalableTag<uint8_t>;
using Quarter = hn::Full128<uint8_t>;  // 16 bytes, whatever the vector's size
using Vec = hn::Vec<Bytes>;
using QuarterVec = hn::Vec<Quarter>;

constexpr size_t kQuarter = 16;
constexpr size_t kRgb = 3;
constexpr size_t kPadded = 4;  // bytes of an RGB pixel while rows lie on their side
constexpr size_t kSide = 4;    // pixels and rows that are turned at once

// 16-bit numbers to bytes, cut to 0..255, in the order of packing within each 16 bytes.
#if HWY_ARCH_X86
HWY_INLINE hn::Vec128<uint8_t> Pack(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  return hn::Vec128<uint8_t>{_mm_packus_epi16(a.raw, b.raw)};
}
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE hn::Vec256<uint8_t> Pack(hn::Vec256<int16_t> a, hn::Vec256<int16_t> b) {
  return hn::Vec256<uint8_t>{_mm256_packus_epi16(a.raw, b.raw)};
}
#endif
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec512<uint8_t> Pack(hn::Vec512<int16_t> a, hn::Vec512<int16_t> b) {
  return hn::Vec512<uint8_t>{_mm512_packus_epi16(a.raw, b.raw)};
}
#endif
#else
template <class V16>
HWY_INLINE hn::Vec<Quarter> Pack(V16 a, V16 b) {
  const hn::Half<Quarter> half;
  return hn::Combine(Quarter(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
}
#endif

template <class D32>
HWY_INLINE hn::Vec<D32> Pairs(D32 d32, const int16_t* two) {
  int32_t both;
  std::memcpy(&both, two, sizeof(both));
  return hn::Set(d32, both);
}

// The weighted sum of `count` vectors of bytes; load(t) gives the t-th. May load one more.
template <class Load>
HWY_INLINE Vec Weigh(const FilterTable::Pair* weights, int count, const Load& load) {
  const Bytes d8;
  const hn::Repartition<int16_t, Bytes> d16;
  const hn::Repartition<int32_t, Bytes> d32;
  const auto zero = hn::Zero(d8);
  auto high0 = hn::Zero(d32), high1 = high0, high2 = high0, high3 = high0;
  auto low0 = hn::Set(d32, 1 << (FilterTable::kFractionBits - 1));
  auto low1 = low0, low2 = low0, low3 = low0;
  // Where a target cannot add neighbours it keeps two sums; the others leave these at 0.
  auto high0b = high0, high1b = high0, high2b = high0, high3b = high0;
  auto low0b = high0, low1b = high0, low2b = high0, low3b = high0;
  for (int t = 0; t < count; t += 2, ++weights) {
    const auto a = load(t);
    const auto b = load(t + 1);
    const auto lower = hn::InterleaveLower(d8, a, b);
    const auto upper = hn::InterleaveUpper(d8, a, b);
    const auto x0 = hn::BitCast(d16, hn::InterleaveLower(d8, lower, zero));
    const auto x1 = hn::BitCast(d16, hn::InterleaveUpper(d8, lower, zero));
    const auto x2 = hn::BitCast(d16, hn::InterleaveLower(d8, upper, zero));
    const auto x3 = hn::BitCast(d16, hn::InterleaveUpper(d8, upper, zero));
    const auto high = hn::BitCast(d16, Pairs(d32, weights->high));
    const auto low = hn::BitCast(d16, Pairs(d32, weights->low));
    high0 = hn::ReorderWidenMulAccumulate(d32, x0, high, high0, high0b);
    high1 = hn::ReorderWidenMulAccumulate(d32, x1, high, high1, high1b);
    high2 = hn::ReorderWidenMulAccumulate(d32, x2, high, high2, high2b);
    high3 = hn::ReorderWidenMulAccumulate(d32, x3, high, high3, high3b);
    low0 = hn::ReorderWidenMulAccumulate(d32, x0, low, low0, low0b);
    low1 = hn::ReorderWidenMulAccumulate(d32, x1, low, low1, low1b);
    low2 = hn::ReorderWidenMulAccumulate(d32, x2, low, low2, low2b);
    low3 = hn::ReorderWidenMulAccumulate(d32, x3, low, low3, low3b);
  }
  const auto sum = [](auto high, auto high_b, auto low, auto low_b) HWY_ATTR {
    const auto whole =
        hn::Add(hn::ShiftLeft<FilterTable::kLowBits>(hn::RearrangeToOddPlusEven(high, high_b)),
                hn::RearrangeToOddPlusEven(low, low_b));
    return hn::ShiftRight<FilterTable::kFractionBits>(whole);
  };
  const auto first =
      hn::ReorderDemote2To(d16, sum(high0, high0b, low0, low0b), sum(high1, high1b, low1, low1b));
  const auto second =
      hn::ReorderDemote2To(d16, sum(high2, high2b, low2, low2b), sum(high3, high3b, low3, low3b));
  return Pack(first, second);
}

// ---- columns

void FilterColumns(const Image& source, int top, const FilterTable& table, Range outputs,
                   uint8_t* out) {
  const Bytes d8;
  const size_t lanes = hn::Lanes(d8);
  const size_t row_bytes = source.RowBytes();
  for (int i = outputs.begin; i < outputs.end; ++i, out += row_bytes) {
    const FilterTable::Window& window = table.windows[static_cast<size_t>(i)];
    const FilterTable::Pair* weights = table.Weights(i);
    const uint8_t* const first = source.Row(window.first - top);
    const auto row = [&](int t) HWY_ATTR {
      return first + static_cast<size_t>(std::min(t, window.count - 1)) * source.stride;
    };
    if (row_bytes < lanes) {
      HWY_ALIGN uint8_t part[HWY_MAX_BYTES] = {};
      const Vec sums = Weigh(weights, window.count, [&](int t) HWY_ATTR {
        std::memcpy(part, row(t), row_bytes);
        return hn::Load(d8, part);
      });
      hn::Store(sums, d8, part);
      std::memcpy(out, part, row_bytes);
      continue;
    }
    // The last vector lies over the one before it.
    for (size_t x = 0; x < row_bytes; x += lanes) {
      const size_t at = std::min(x, row_bytes - lanes);
      const Vec sums =
          Weigh(weights, window.count, [&](int t) HWY_ATTR { return hn::LoadU(d8, row(t) + at); });
      hn::StoreU(sums, d8, out + at);
    }
  }
}

// ---- rows

// The quarters of a vector hold four rows each: rows i, i + 4, i + 8 ... lie in one vector.
constexpr uint8_t kOut = 0x80;  // makes a zero byte

// In each 16 bytes: four RGB pixels to four bytes each.
template <class D>
HWY_INLINE hn::Vec<D> Spread(D d, hn::Vec<D> rgb) {
  HWY_ALIGN static constexpr uint8_t kPlaces[kQuarter] = {0, 1, 2, kOut, 3, 4,  5,  kOut,
                                                          6, 7, 8, kOut, 9, 10, 11, kOut};
  return hn::TableLookupBytesOr0(rgb, hn::LoadDup128(d, kPlaces));
}

// And back, to the front of each 16 bytes.
template <class D>
HWY_INLINE hn::Vec<D> Close(D d, hn::Vec<D> padded) {
  HWY_ALIGN static constexpr uint8_t kPlaces[kQuarter] = {0,  1,  2,  4,  5,    6,    8,    9,
                                                          10, 12, 13, 14, kOut, kOut, kOut, kOut};
  return hn::TableLookupBytesOr0(padded, hn::LoadDup128(d, kPlaces));
}

// Four rows of four pixels of four bytes in each 16 bytes. By name, not as an array: the compiler
// would keep that in memory.
struct Square {
  Vec a, b, c, d;
};

// Its columns become its rows.
HWY_INLINE Square Turned(const Square& square) {
  const Bytes d8;
  const hn::Repartition<uint32_t, Bytes> d32;
  const hn::Repartition<uint64_t, Bytes> d64;
  const auto a = hn::BitCast(d32, square.a), b = hn::BitCast(d32, square.b);
  const auto c = hn::BitCast(d32, square.c), d = hn::BitCast(d32, square.d);
  const auto ab_lower = hn::BitCast(d64, hn::InterleaveLower(d32, a, b));
  const auto ab_upper = hn::BitCast(d64, hn::InterleaveUpper(d32, a, b));
  const auto cd_lower = hn::BitCast(d64, hn::InterleaveLower(d32, c, d));
  const auto cd_upper = hn::BitCast(d64, hn::InterleaveUpper(d32, c, d));
  return {hn::BitCast(d8, hn::InterleaveLower(d64, ab_lower, cd_lower)),
          hn::BitCast(d8, hn::InterleaveUpper(d64, ab_lower, cd_lower)),
          hn::BitCast(d8, hn::InterleaveLower(d64, ab_upper, cd_upper)),
          hn::BitCast(d8, hn::InterleaveUpper(d64, ab_upper, cd_upper))};
}

using Rows = std::array<const uint8_t*, HWY_MAX_BYTES>;

// 16 bytes each of rows[0], rows[4], rows[8] ...
template <class D, class Load>
HWY_INLINE hn::Vec<D> Gather(D d, const uint8_t* const* rows, const Load& load) {
  if constexpr (hn::MaxLanes(D()) <= kQuarter) {
    return load(rows[0]);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, Gather(half, rows + hn::Lanes(half) / kPadded, load),
                       Gather(half, rows, load));
  }
}

// Into rows that lie `row_bytes` apart; `rows` of them are there.
template <class D, class Store>
HWY_INLINE void Scatter([[maybe_unused]] D d, hn::Vec<D> v, size_t rows, size_t row_bytes,
                        uint8_t* to, const Store& store) {
  if constexpr (hn::MaxLanes(D()) <= kQuarter) {
    if (rows > 0) store(v, to);
  } else {
    const hn::Half<D> half;
    const size_t lower = hn::Lanes(half) / kPadded;
    Scatter(half, hn::LowerHalf(half, v), rows, row_bytes, to, store);
    if (rows <= lower) return;
    Scatter(half, hn::UpperHalf(half, v), rows - lower, row_bytes, to + lower * row_bytes, store);
  }
}

// Pixel x of row r goes to `side` + x * lanes + r * kPadded. Columns behind the last are written as
// well: there is room.
HWY_INLINE void LayRgbOnSide(const Rows& rows, size_t columns, uint8_t* side) {
  const Bytes d8;
  const size_t lanes = hn::Lanes(d8);
  const auto lay = [&](const auto& load) HWY_ATTR {
    const Square turned = Turned({Spread(d8, Gather(d8, rows.data(), load)),
                                  Spread(d8, Gather(d8, rows.data() + 1, load)),
                                  Spread(d8, Gather(d8, rows.data() + 2, load)),
                                  Spread(d8, Gather(d8, rows.data() + 3, load))});
    hn::Store(turned.a, d8, side);
    hn::Store(turned.b, d8, side + lanes);
    hn::Store(turned.c, d8, side + 2 * lanes);
    hn::Store(turned.d, d8, side + 3 * lanes);
    side += kSide * lanes;
  };
  const size_t row_bytes = columns * kRgb;
  size_t x = 0;
  for (; x + kQuarter <= row_bytes; x += kSide * kRgb) {
    lay([x](const uint8_t* row) HWY_ATTR { return hn::LoadU(Quarter(), row + x); });
  }
  for (; x < row_bytes; x += kSide * kRgb) {
    lay([x, row_bytes](const uint8_t* row) HWY_ATTR {
      HWY_ALIGN uint8_t bytes[kQuarter] = {};
      std::memcpy(bytes, row + x, std::min(row_bytes - x, kQuarter));
      return hn::Load(Quarter(), bytes);
    });
  }
}

// The other way, `count` columns into `rows` rows at `out`.
HWY_INLINE void SetRgbUpright(const uint8_t* side, size_t rows, size_t count, uint8_t* out) {
  const Bytes d8;
  const size_t lanes = hn::Lanes(d8);
  const size_t row_bytes = count * kRgb;
  const auto set = [&](const auto& store) HWY_ATTR {
    const Square turned = Turned({hn::Load(d8, side), hn::Load(d8, side + lanes),
                                  hn::Load(d8, side + 2 * lanes), hn::Load(d8, side + 3 * lanes)});
    side += kSide * lanes;
    const auto scatter = [&](Vec v, size_t i) HWY_ATTR {
      const size_t there = rows > i ? (rows - i + kSide - 1) / kSide * kSide : 0;
      Scatter(d8, Close(d8, v), there, row_bytes, out + i * row_bytes, store);
    };
    scatter(turned.a, 0);
    scatter(turned.b, 1);
    scatter(turned.c, 2);
    scatter(turned.d, 3);
  };
  // A whole store writes four bytes too many, which the next one mends.
  size_t x = 0;
  for (; x + kQuarter <= row_bytes; x += kSide * kRgb) {
    set([x](QuarterVec v, uint8_t* row) HWY_ATTR { hn::StoreU(v, Quarter(), row + x); });
  }
  for (; x < row_bytes; x += kSide * kRgb) {
    set([x, row_bytes](QuarterVec v, uint8_t* row) HWY_ATTR {
      HWY_ALIGN uint8_t bytes[kQuarter];
      hn::Store(v, Quarter(), bytes);
      std::memcpy(row + x, bytes, std::min(row_bytes - x, kSide * kRgb));
    });
  }
}

HWY_INLINE void LayGreyOnSide(const Rows& rows, size_t row_count, size_t columns, size_t lanes,
                              uint8_t* side) {
  for (size_t r = 0; r < row_count; ++r) {
    for (size_t x = 0; x < columns; ++x) side[x * lanes + r] = rows[r][x];
  }
}

HWY_INLINE void SetGreyUpright(const uint8_t* side, size_t rows, size_t count, size_t lanes,
                               uint8_t* out) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t x = 0; x < count; ++x) *out++ = side[x * lanes + r];
  }
}

void FilterRows(const Image& source, int left, const FilterTable& table, Range outputs,
                ByteBuffer& extra, uint8_t* out) {
  const Bytes d8;
  const size_t lanes = hn::Lanes(d8);
  const bool is_rgb = source.channels == 3;
  const size_t together = is_rgb ? lanes / kPadded : lanes;  // rows
  const Range inputs = InputsOf(table, outputs);
  const auto columns = static_cast<size_t>(inputs.count());
  const auto count = static_cast<size_t>(outputs.count());
  // Each holds what turning four at a time and the odd tap write or read behind the last.
  const size_t side_bytes = (columns + kSide) * lanes;
  const size_t done_bytes = (count + kSide) * lanes;
  uint8_t* const memory = extra.Resize(side_bytes + done_bytes + lanes).data();
  uint8_t* const side = memory + (lanes - reinterpret_cast<uintptr_t>(memory) % lanes);
  uint8_t* const done = side + side_bytes;
  std::memset(side + columns * lanes, 0, kSide * lanes);
  std::memset(done + count * lanes, 0, kSide * lanes);

  const size_t skip = static_cast<size_t>(inputs.begin - left) * (is_rgb ? kRgb : 1);
  const auto height = static_cast<size_t>(source.height);
  Rows rows;
  for (size_t y = 0; y < height; y += together, out += together * count * (is_rgb ? kRgb : 1)) {
    const size_t present = std::min(together, height - y);
    // The last row stands for those that are not there.
    for (size_t r = 0; r < together; ++r) {
      rows[r] = source.Row(static_cast<int>(y + std::min(r, present - 1))) + skip;
    }
    is_rgb ? LayRgbOnSide(rows, columns, side)
           : LayGreyOnSide(rows, together, columns, lanes, side);
    uint8_t* to = done;
    for (int i = outputs.begin; i < outputs.end; ++i, to += lanes) {
      const FilterTable::Window& window = table.windows[static_cast<size_t>(i)];
      const uint8_t* const from = side + static_cast<size_t>(window.first - inputs.begin) * lanes;
      const Vec sums = Weigh(table.Weights(i), window.count, [&](int t) HWY_ATTR {
        return hn::Load(d8, from + static_cast<size_t>(t) * lanes);
      });
      hn::Store(sums, d8, to);
    }
    is_rgb ? SetRgbUpright(done, present, count, out)
           : SetGreyUpright(done, present, count, lanes, out);
  }
}

// ---- mirror

void MirrorRows(const Image& source, uint8_t* out) {
  constexpr size_t kPixels = 5;  // whole ones in 16 bytes
  alignas(kQuarter) static constexpr uint8_t kReverse[kQuarter] = {13, 14, 15, 10, 11, 12, 7, 8,
                                                                   9,  4,  5,  6,  1,  2,  3, 0x80};
  const auto reverse = hn::Load(Quarter(), kReverse);
  const auto width = static_cast<size_t>(source.width);
  for (int y = 0; y < source.height; ++y) {
    const uint8_t* const row = source.Row(y);
    if (source.channels == 1) {
      out = std::reverse_copy(row, row + width, out);
      continue;
    }
    // From the end of the row. A vector begins with a byte of the pixel before, and what is stored
    // for it the next store mends.
    size_t left = width;
    for (; left > kPixels; left -= kPixels, out += kPixels * kRgb) {
      const auto v = hn::LoadU(Quarter(), row + (left - kPixels) * kRgb - 1);
      hn::StoreU(hn::TableLookupBytesOr0(v, reverse), Quarter(), out);
    }
    for (; left > 0; --left, out += kRgb) std::memcpy(out, row + (left - 1) * kRgb, kRgb);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace loaderd::transform
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loaderd::transform {
HWY_EXPORT(FilterRows);
HWY_EXPORT(FilterColumns);
HWY_EXPORT(MirrorRows);

void FilterRows(const Image& source, int left, const FilterTable& table, Range outputs,
                ByteBuffer& extra, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(FilterRows)(source, left, table, outputs, extra, out);
}

void FilterColumns(const Image& source, int top, const FilterTable& table, Range outputs,
                   uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(FilterColumns)(source, top, table, outputs, out);
}

void MirrorRows(const Image& source, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(MirrorRows)(source, out);
}

}  // namespace loaderd::transform
#endif
