// SPDX-License-Identifier: Apache-2.0
#include "server/transform/geometry_ops.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

namespace loaderd::transform {
namespace {
double Radians(double degrees) { return degrees * (std::numbers::pi / 180.0); }

// Python's round(value, 15): by way of the decimal digits.
double Round15(double value) {
  std::array<char, 64> text;
  const auto written =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 15);
  double rounded = value;
  std::from_chars(text.data(), written.ptr, rounded);
  return rounded;
}

Point Times(const AffineMatrix& m, double x, double y) {
  return {m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]};
}

// The image turned by 90 (`quarters` = 1), 180 or 270 degrees, counter-clockwise.
Image Turn(const Image& image, int quarters, ImageMemory& memory) {
  uint8_t* to = memory.Next().Resize(image.Bytes()).data();
  const bool is_flat = quarters == 2;
  const int height = is_flat ? image.height : image.width;
  const int width = is_flat ? image.width : image.height;
  const Image result = Contiguous(to, height, width, image.channels);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x, to += image.channels) {
      int from_y = height - 1 - y;
      int from_x = width - 1 - x;
      if (quarters == 1) std::tie(from_y, from_x) = std::pair(x, height - 1 - y);
      if (quarters == 3) std::tie(from_y, from_x) = std::pair(width - 1 - x, y);
      const uint8_t* const from =
          image.Row(from_y) + static_cast<ptrdiff_t>(from_x) * image.channels;
      std::copy(from, from + image.channels, to);
    }
  }
  return result;
}

// Which of `size` pixels numpy.pad repeats at `place`, which may lie outside of them.
int Reflected(int64_t place, int size, PadMode mode) {
  if (mode == PadMode::kEdge || size == 1) {
    return static_cast<int>(std::clamp<int64_t>(place, 0, size - 1));
  }
  // The edge itself is repeated (symmetric) or not (reflect).
  const int64_t period = mode == PadMode::kSymmetric ? int64_t{2} * size : int64_t{2} * size - 2;
  const int64_t within = ((place % period) + period) % period;
  if (within < size) return static_cast<int>(within);
  return static_cast<int>(mode == PadMode::kSymmetric ? period - 1 - within : period - within);
}
}  // namespace

Image FlipVertically(const Image& image, ImageMemory& memory) {
  uint8_t* to = memory.Next().Resize(image.Bytes()).data();
  const Image result = Contiguous(to, image.height, image.width, image.channels);
  for (int y = image.height - 1; y >= 0; --y, to += image.RowBytes()) {
    std::memcpy(to, image.Row(y), image.RowBytes());
  }
  return result;
}

StatusOr<Image> Pad(const Image& image, const Padding& padding, PadMode mode, const Fill& fill,
                    const ImageRules& rules, ImageMemory& memory) {
  const WideSize wide = {.height = int64_t{image.height} + padding.top + padding.bottom,
                         .width = int64_t{image.width} + padding.left + padding.right};
  RETURN_IF_ERROR(CheckPixels(wide, rules.max_pixels, "the padded image"));
  const int height = static_cast<int>(wide.height);
  const int width = static_cast<int>(wide.width);
  const auto channels = static_cast<size_t>(image.channels);
  const size_t row_bytes = channels * static_cast<size_t>(width);
  uint8_t* const out = memory.Next().Resize(row_bytes * static_cast<size_t>(height)).data();
  const auto pixel = [&](uint8_t* row, int x) { return row + static_cast<size_t>(x) * channels; };
  for (int y = 0; y < height; ++y) {
    uint8_t* const row = out + static_cast<size_t>(y) * row_bytes;
    const int inside = y - padding.top;
    const bool is_border = inside < 0 || inside >= image.height;
    if (mode == PadMode::kConstant && is_border) {
      for (int x = 0; x < width; ++x) std::memcpy(pixel(row, x), fill.data(), channels);
      continue;
    }
    const uint8_t* const from =
        image.Row(is_border ? Reflected(inside, image.height, mode) : inside);
    std::memcpy(pixel(row, padding.left), from, image.RowBytes());
    const auto border = [&](int x) {
      const uint8_t* const source =
          mode == PadMode::kConstant
              ? fill.data()
              : from +
                    static_cast<size_t>(Reflected(x - padding.left, image.width, mode)) * channels;
      std::memcpy(pixel(row, x), source, channels);
    };
    for (int x = 0; x < padding.left; ++x) border(x);
    for (int x = padding.left + image.width; x < width; ++x) border(x);
  }
  return Contiguous(out, height, width, image.channels);
}

StatusOr<Image> Rotate(const Image& image, double angle, Filter filter, bool expand,
                       const std::optional<Point>& center, const Fill& fill,
                       const ImageRules& rules, ImageMemory& memory) {
  angle = std::fmod(angle, 360.0);
  if (angle < 0) angle += 360.0;
  if (!center) {
    if (angle == 0) return image;
    if (angle == 180) return Turn(image, 2, memory);
    if ((angle == 90 || angle == 270) && (expand || image.width == image.height)) {
      return Turn(image, angle == 90 ? 1 : 3, memory);
    }
  }
  const Point middle = center.value_or(Point{image.width / 2.0, image.height / 2.0});
  const double turn = -Radians(angle);
  AffineMatrix m = {Round15(std::cos(turn)),  Round15(std::sin(turn)), 0.0,
                    Round15(-std::sin(turn)), Round15(std::cos(turn)), 0.0};
  const Point origin = Times(m, -middle[0], -middle[1]);
  m[2] = origin[0] + middle[0];
  m[5] = origin[1] + middle[1];
  WideSize wide = {.height = image.height, .width = image.width};
  if (expand) {
    const double w = image.width;
    const double h = image.height;
    const std::array<Point, 4> corners = {Times(m, 0, 0), Times(m, w, 0), Times(m, w, h),
                                          Times(m, 0, h)};
    const auto length = [&](size_t axis) {
      const auto less = [&](const Point& a, const Point& b) { return a[axis] < b[axis]; };
      const auto [least, most] = std::minmax_element(corners.begin(), corners.end(), less);
      return static_cast<int64_t>(std::ceil((*most)[axis]) - std::floor((*least)[axis]));
    };
    wide = {.height = length(1), .width = length(0)};
    RETURN_IF_ERROR(CheckPixels(wide, rules.max_pixels, "the turned image"));
    const Point moved = Times(m, -(static_cast<double>(wide.width) - w) / 2.0,
                              -(static_cast<double>(wide.height) - h) / 2.0);
    m[2] = moved[0];
    m[5] = moved[1];
  }
  const Size size = {static_cast<int>(wide.height), static_cast<int>(wide.width)};
  const size_t bytes = static_cast<size_t>(size.height) * static_cast<size_t>(size.width) *
                       static_cast<size_t>(image.channels);
  uint8_t* const out = memory.Next().Resize(bytes).data();
  WarpAffine(image, m, filter, fill, size, out);
  return Contiguous(out, size.height, size.width, image.channels);
}

Image Affine(const Image& image, const AffineParams& params, Filter filter,
             const std::optional<Point>& center, const Fill& fill, ImageMemory& memory) {
  const auto [cx, cy] = center.value_or(Point{image.width * 0.5, image.height * 0.5});
  const double turn = Radians(params.angle);
  const double sx = Radians(params.shear[0]);
  const double sy = Radians(params.shear[1]);
  const double a = std::cos(turn - sy) / std::cos(sy);
  const double b = -std::cos(turn - sy) * std::tan(sx) / std::cos(sy) - std::sin(turn);
  const double c = std::sin(turn - sy) / std::cos(sy);
  const double d = -std::sin(turn - sy) * std::tan(sx) / std::cos(sy) + std::cos(turn);
  AffineMatrix m = {d, -b, 0.0, -c, a, 0.0};
  for (double& value : m) value /= params.scale;
  const double tx = params.translate[0];
  const double ty = params.translate[1];
  m[2] += m[0] * (-cx - tx) + m[1] * (-cy - ty);
  m[5] += m[3] * (-cx - tx) + m[4] * (-cy - ty);
  m[2] += cx;
  m[5] += cy;
  uint8_t* const out = memory.Next().Resize(image.Bytes()).data();
  WarpAffine(image, m, filter, fill, {image.height, image.width}, out);
  return Contiguous(out, image.height, image.width, image.channels);
}

PerspectiveMatrix PerspectiveCoefficients(const Corners& from, const Corners& to) {
  // Gauss with pivots; in long double, so that the rounding to float decides, not this.
  std::array<std::array<long double, 9>, 8> rows{};
  for (size_t i = 0; i < 4; ++i) {
    const auto [px, py] = to[i];
    const auto [qx, qy] = from[i];
    const auto product = [](int a, int b) { return -static_cast<long double>(a) * b; };
    rows[2 * i] = {static_cast<long double>(px),
                   static_cast<long double>(py),
                   1,
                   0,
                   0,
                   0,
                   product(qx, px),
                   product(qx, py),
                   static_cast<long double>(qx)};
    rows[2 * i + 1] = {0,
                       0,
                       0,
                       static_cast<long double>(px),
                       static_cast<long double>(py),
                       1,
                       product(qy, px),
                       product(qy, py),
                       static_cast<long double>(qy)};
  }
  for (size_t column = 0; column < 8; ++column) {
    const auto pivot = std::max_element(
        rows.begin() + static_cast<ptrdiff_t>(column), rows.end(),
        [&](const auto& a, const auto& b) { return std::fabs(a[column]) < std::fabs(b[column]); });
    std::swap(rows[column], *pivot);
    // Without a solution (corners on one line) the columns that hang together count as 0.
    if (rows[column][column] == 0) continue;
    for (size_t row = 0; row < 8; ++row) {
      if (row == column) continue;
      const long double factor = rows[row][column] / rows[column][column];
      for (size_t k = column; k < 9; ++k) rows[row][k] -= factor * rows[column][k];
    }
  }
  PerspectiveMatrix matrix{};
  for (size_t i = 0; i < 8; ++i) {
    if (rows[i][i] != 0) matrix[i] = static_cast<float>(rows[i][8] / rows[i][i]);
  }
  return matrix;
}

Image Perspective(const Image& image, const Corners& from, const Corners& to, Filter filter,
                  const Fill& fill, ImageMemory& memory) {
  uint8_t* const out = memory.Next().Resize(image.Bytes()).data();
  WarpPerspective(image, PerspectiveCoefficients(from, to), filter, fill,
                  {image.height, image.width}, out);
  return Contiguous(out, image.height, image.width, image.channels);
}

}  // namespace loaderd::transform
