// SPDX-License-Identifier: Apache-2.0
#include "server/transform/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "absl/strings/str_cat.h"

namespace loaderd::transform {
namespace {
constexpr int64_t kMaxSide = int64_t{1} << 28;  // a row of three channels still counts in an int

struct Kernel {
  double support;  // the filter is 0 beyond it
  double (*value)(double x);
};

double Box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

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

Kernel KernelOf(Filter filter) {
  switch (filter) {
    case Filter::kBox: return {0.5, Box};
    case Filter::kHamming: return {1.0, Hamming};
    case Filter::kBicubic: return {2.0, Cubic};
    case Filter::kLanczos: return {3.0, Lanczos};
    case Filter::kBilinear:
    case Filter::kNearest: break;  // NEAREST never comes here
  }
  return {1.0, Triangle};
}

bool ColumnsFirst(const Image& source, Size size, Reference reference) {
  if (reference == Reference::kPillow12) return false;
  return source.height - size.height > std::max(0, 2 * (source.width - size.width));
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

const FilterTable& Resampler::TableFor(int in, int out, Filter filter, Axis& axis) {
  FilterTable& table = axis.table;
  if (axis.in == in && axis.out == out && axis.filter == filter) return table;
  axis.in = 0;  // matches nothing, should memory run out below
  const Kernel kernel = KernelOf(filter);
  // The order of these operations is Pillow's: another one rounds differently.
  const double scale = static_cast<double>(in) / out;
  const double filter_scale = std::max(scale, 1.0);
  const double support = kernel.support * filter_scale;
  const double step = 1.0 / filter_scale;
  table.taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  table.windows.resize(static_cast<size_t>(out));
  table.weights.resize(static_cast<size_t>(out) * static_cast<size_t>(table.taps));
  weights_.resize(static_cast<size_t>(table.taps));
  int32_t* fixed = table.weights.data();
  for (int i = 0; i < out; ++i, fixed += table.taps) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int count = std::min(static_cast<int>(center + support + 0.5), in) - first;
    double sum = 0.0;
    for (int t = 0; t < count; ++t) {
      const double weight = kernel.value((t + first - center + 0.5) * step);
      weights_[static_cast<size_t>(t)] = weight;
      sum += weight;
    }
    for (int t = 0; t < count; ++t) {
      double weight = weights_[static_cast<size_t>(t)];
      if (sum != 0.0) weight /= sum;
      const double scaled = weight * (1 << FilterTable::kFractionBits);
      fixed[t] = static_cast<int32_t>(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
    }
    table.windows[static_cast<size_t>(i)] = {.first = first, .count = count};
  }
  axis.in = in;
  axis.out = out;
  axis.filter = filter;
  return table;
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

StatusOr<Image> Resampler::Resize(const Image& source, Size size, Filter filter,
                                  Reference reference, uint64_t max_pixels, ByteBuffer& out) {
  const bool do_rows = size.width != source.width;
  const bool do_columns = size.height != source.height;
  if (!do_rows && !do_columns) return source;
  if (filter == Filter::kNearest) return PickNearest(source, size, out);

  const auto filter_rows = [&](const Image& from, ByteBuffer& to) {
    const FilterTable& table = TableFor(from.width, size.width, filter, rows_);
    const Image result = {.height = from.height, .width = size.width, .channels = from.channels};
    uint8_t* const data = to.Resize(result.Bytes()).data();
    FilterRows(from, table, data);
    return Contiguous(data, result.height, result.width, result.channels);
  };
  const auto filter_columns = [&](const Image& from, ByteBuffer& to) {
    const FilterTable& table = TableFor(from.height, size.height, filter, columns_);
    const Image result = {.height = size.height, .width = from.width, .channels = from.channels};
    uint8_t* const data = to.Resize(result.Bytes()).data();
    FilterColumns(from, table, data);
    return Contiguous(data, result.height, result.width, result.channels);
  };
  if (!do_columns) return filter_rows(source, out);
  if (!do_rows) return filter_columns(source, out);
  const bool columns_first = ColumnsFirst(source, size, reference);
  const WideSize between = {.height = columns_first ? size.height : source.height,
                            .width = columns_first ? source.width : size.width};
  RETURN_IF_ERROR(CheckPixels(between, max_pixels, "the image between the two passes of resizing"));
  if (columns_first) return filter_rows(filter_columns(source, between_), out);
  return filter_columns(filter_rows(source, between_), out);
}

void Resampler::Trim(size_t bytes) {
  if (between_.capacity() > bytes) between_.Free();
  for (Axis* axis : {&rows_, &columns_}) {
    if (axis->table.weights.capacity() * sizeof(int32_t) > bytes) *axis = Axis{};
  }
}

}  // namespace loaderd::transform
