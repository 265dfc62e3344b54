// SPDX-License-Identifier: Apache-2.0
#include "server/transform/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"

namespace loaderd::transform {
namespace {
constexpr int64_t kMaxSide = int64_t{1} << 28;  // a row of three channels still counts in an int

double BoxValue(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double Triangle(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double Sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double Hamming(double x) {
  x = std::fabs(x);
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x *= std::numbers::pi;
  return std::sin(x) / x * (0.54F + 0.46F * std::cos(x));  // floats, as in Pillow: it shows
}

// Keys, "Cubic convolution interpolation for digital image processing", 1981, with a = -1/2.
double Cubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return 0.0;
}

double Lanczos(double x) { return x >= -3.0 && x < 3.0 ? Sinc(x) * Sinc(x / 3.0) : 0.0; }

bool ColumnsFirst(const Resizing& resizing) {
  const auto [in, out] = std::pair(resizing.in, resizing.out);
  if (resizing.reference == Reference::kPillow12) return false;
  return in.height - out.height > std::max(0, 2 * (in.width - out.width));
}

Range RowsOf(const Box& box) { return {box.top, box.top + box.height}; }
Range ColumnsOf(const Box& box) { return {box.left, box.left + box.width}; }

// Weights of one window, not yet normalised. The order of operations is Pillow's: another one
// rounds differently.
template <double (*kValue)(double)>
void Weigh(double center, double step, int first, int count, double* weights) {
  for (int t = 0; t < count; ++t) weights[t] = kValue((t + first - center + 0.5) * step);
}

struct Kernel {
  double support;  // the filter is 0 beyond it
  void (*weigh)(double center, double step, int first, int count, double* weights);
};

Kernel KernelOf(Filter filter) {
  switch (filter) {
    case Filter::kBox: return {0.5, Weigh<BoxValue>};
    case Filter::kHamming: return {1.0, Weigh<Hamming>};
    case Filter::kBicubic: return {2.0, Weigh<Cubic>};
    case Filter::kLanczos: return {3.0, Weigh<Lanczos>};
    case Filter::kBilinear:
    case Filter::kNearest: break;  // NEAREST never comes here
  }
  return {1.0, Weigh<Triangle>};
}
}  // namespace

Status CheckPixels(const WideSize& size, uint64_t max_pixels, const char* what) {
  if (size.height < 1 || size.width < 1) {
    return absl::DataLossError(
        absl::StrCat(what, " would be empty: ", size.width, " x ", size.height, " pixels"));
  }
  if (size.height > kMaxSide || size.width > kMaxSide ||
      static_cast<uint64_t>(size.height) * static_cast<uint64_t>(size.width) > max_pixels) {
    return absl::DataLossError(absl::StrCat(what, " would have ", size.width, " x ", size.height,
                                            " pixels; the limit is ", max_pixels, " pixels"));
  }
  return absl::OkStatus();
}

const FilterTable& Resampler::TableFor(const Side& side, Filter filter, Axis& axis) {
  FilterTable& table = axis.table;
  if (axis.side == side && axis.filter == filter) return table;
  axis.side = {};  // matches nothing, should memory run out below
  const int in = side.in, out = side.out;
  const Kernel kernel = KernelOf(filter);
  const double scale = side.length / out;
  const double filter_scale = std::max(scale, 1.0);
  const double support = kernel.support * filter_scale;
  const double step = 1.0 / filter_scale;
  const int taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  table.pairs = (taps + 1) / 2;
  table.windows.resize(static_cast<size_t>(out));
  table.weights.resize(static_cast<size_t>(out) * static_cast<size_t>(table.pairs));
  weights_.resize(static_cast<size_t>(taps));
  FilterTable::Pair* pairs = table.weights.data();
  for (int i = 0; i < out; ++i, pairs += table.pairs) {
    const double center = side.from + (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int count = std::min(static_cast<int>(center + support + 0.5), in) - first;
    kernel.weigh(center, step, first, count, weights_.data());
    double sum = 0.0;
    for (int t = 0; t < count; ++t) sum += weights_[static_cast<size_t>(t)];
    std::fill_n(pairs, table.pairs, FilterTable::Pair{});
    for (int t = 0; t < count; ++t) {
      double weight = weights_[static_cast<size_t>(t)];
      if (sum != 0.0) weight /= sum;
      const double scaled = weight * (1 << FilterTable::kFractionBits);
      pairs[t / 2].Set(t % 2, static_cast<int32_t>(weight < 0 ? -0.5 + scaled : 0.5 + scaled));
    }
    table.windows[static_cast<size_t>(i)] = {.first = first, .count = count};
  }
  axis.side = side;
  axis.filter = filter;
  return table;
}

const FilterTable& Resampler::RowTable(const Resizing& resizing) {
  const int in = resizing.in.width;
  Side side = {.in = in, .length = static_cast<double>(in), .out = resizing.out.width};
  if (!resizing.all()) {
    side.from = resizing.from.left;
    side.length = resizing.from.width;
  }
  return TableFor(side, resizing.filter, rows_);
}
const FilterTable& Resampler::ColumnTable(const Resizing& resizing) {
  const int in = resizing.in.height;
  Side side = {.in = in, .length = static_cast<double>(in), .out = resizing.out.height};
  if (!resizing.all()) {
    side.from = resizing.from.top;
    side.length = resizing.from.height;
  }
  return TableFor(side, resizing.filter, columns_);
}

Box Resampler::Needed(const Resizing& resizing) {
  const auto [in, out] = std::pair(resizing.in, resizing.out);
  if (resizing.filter == Filter::kNearest && !resizing.keeps_size()) {
    return {.height = in.height, .width = in.width};
  }
  Range rows = RowsOf(resizing.wanted);
  Range columns = ColumnsOf(resizing.wanted);
  if (!resizing.all() || in.height != out.height) rows = InputsOf(ColumnTable(resizing), rows);
  if (!resizing.all() || in.width != out.width) columns = InputsOf(RowTable(resizing), columns);
  return {
      .top = rows.begin, .left = columns.begin, .height = rows.count(), .width = columns.count()};
}

// Pillow takes NEAREST through its affine transform, which adds the step up instead of multiplying;
// where the sum leaves the image, pixels stay 0.
Image Resampler::PickNearest(const Image& source, Size size, ByteBuffer& out) {
  const double x_step = static_cast<double>(source.width) / size.width;
  const double y_step = static_cast<double>(source.height) / size.height;
  picked_.resize(static_cast<size_t>(size.width));
  double x = x_step * 0.5;
  for (int& picked : picked_) {
    picked = x < source.width ? static_cast<int>(x) : -1;
    x += x_step;
  }
  const auto channels = static_cast<size_t>(source.channels);
  uint8_t* to = out.Resize(static_cast<size_t>(size.height) * picked_.size() * channels).data();
  const Image result = Contiguous(to, size.height, size.width, source.channels);
  double y = y_step * 0.5;
  for (int row = 0; row < size.height; ++row, y += y_step) {
    const bool is_inside = y < source.height;
    const uint8_t* from = source.Row(is_inside ? static_cast<int>(y) : 0);
    for (const int picked : picked_) {
      for (size_t c = 0; c < channels; ++c) {
        *to++ = is_inside && picked >= 0 ? from[static_cast<size_t>(picked) * channels + c] : 0;
      }
    }
  }
  return result;
}

StatusOr<Image> Resampler::Resize(const Image& source, const Box& given, const Resizing& resizing,
                                  uint64_t max_pixels, ByteBuffer& out) {
  const auto [in, size] = std::pair(resizing.in, resizing.out);
  const Box& wanted = resizing.wanted;
  const bool do_rows = !resizing.all() || size.width != in.width;
  const bool do_columns = !resizing.all() || size.height != in.height;
  const auto part = [](const Image& image, const Box& at, Range rows, Range columns) {
    return image.Crop({.top = rows.begin - at.top,
                       .left = columns.begin - at.left,
                       .height = rows.count(),
                       .width = columns.count()});
  };
  if (!do_rows && !do_columns) return part(source, given, RowsOf(wanted), ColumnsOf(wanted));
  if (resizing.filter == Filter::kNearest) {
    const Image whole = part(source, given, {0, in.height}, {0, in.width});
    return PickNearest(whole, size, out).Crop(wanted);
  }
  if (do_rows && do_columns) {
    const bool columns_first = ColumnsFirst(resizing);
    RETURN_IF_ERROR(CheckPixels({.height = columns_first ? size.height : in.height,
                                 .width = columns_first ? in.width : size.width},
                                max_pixels, "the image between the two passes of resizing"));
  }

  // `image` has the columns from `left` on, and loses none of its rows.
  const auto filter_rows = [&](const Image& image, int left, ByteBuffer& to) {
    const Image result = {
        .height = image.height, .width = wanted.width, .channels = image.channels};
    uint8_t* const data = to.Resize(result.Bytes()).data();
    FilterRows(image, left, RowTable(resizing), ColumnsOf(wanted), extra_, data);
    return Contiguous(data, result.height, result.width, result.channels);
  };
  // `image` has the rows from `top` on, and loses none of its columns.
  const auto filter_columns = [&](const Image& image, int top, ByteBuffer& to) {
    const Image result = {
        .height = wanted.height, .width = image.width, .channels = image.channels};
    uint8_t* const data = to.Resize(result.Bytes()).data();
    FilterColumns(image, top, ColumnTable(resizing), RowsOf(wanted), data);
    return Contiguous(data, result.height, result.width, result.channels);
  };
  const Box needed = Needed(resizing);
  const Image image = part(source, given, RowsOf(needed), ColumnsOf(needed));
  if (!do_columns) return filter_rows(image, needed.left, out);
  if (!do_rows) return filter_columns(image, needed.top, out);
  if (ColumnsFirst(resizing)) {
    return filter_rows(filter_columns(image, needed.top, between_), needed.left, out);
  }
  return filter_columns(filter_rows(image, needed.left, between_), needed.top, out);
}

StatusOr<Image> Resampler::Resize(const Image& source, Size size, Filter filter,
                                  Reference reference, uint64_t max_pixels, ByteBuffer& out) {
  return Resize(source, {.height = source.height, .width = source.width},
                {.in = {source.height, source.width},
                 .out = size,
                 .wanted = {.height = size.height, .width = size.width},
                 .filter = filter,
                 .reference = reference},
                max_pixels, out);
}

void Resampler::Trim(size_t bytes) {
  for (ByteBuffer* buffer : {&between_, &extra_}) {
    if (buffer->capacity() > bytes) buffer->Free();
  }
  for (Axis* axis : {&rows_, &columns_}) {
    if (axis->table.weights.capacity() * sizeof(FilterTable::Pair) > bytes) *axis = Axis{};
  }
}

}  // namespace loaderd::transform
