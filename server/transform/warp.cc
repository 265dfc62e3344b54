// SPDX-License-Identifier: Apache-2.0
#include "server/transform/warp.h"

#include <algorithm>
#include <cmath>

namespace loaderd::transform {
namespace {

void Copy(const uint8_t* from, int channels, uint8_t* to) {
  for (int c = 0; c < channels; ++c) to[c] = from[c];
}

// A coordinate's pixel, or -1 outside. Not a number is outside.
int PixelAt(double coordinate, int size) {
  return coordinate >= 0 && coordinate < size ? static_cast<int>(coordinate) : -1;
}

struct Nearest {
  static bool Sample(const Image& image, double x, double y, uint8_t* out) {
    const int px = PixelAt(x, image.width);
    const int py = PixelAt(y, image.height);
    if (px < 0 || py < 0) return false;
    Copy(image.Row(py) + static_cast<ptrdiff_t>(px) * image.channels, image.channels, out);
    return true;
  }
};

struct Bilinear {
  static constexpr int kTaps = 2;
  static constexpr int kBefore = 0;
  static double Mix(const std::array<double, kTaps>& v, double d) {
    return v[0] + (v[1] - v[0]) * d;
  }
};

struct Bicubic {
  static constexpr int kTaps = 4;
  static constexpr int kBefore = 1;
  static double Mix(const std::array<double, kTaps>& v, double d) {
    const double p1 = v[1];
    const double p2 = -v[0] + v[2];
    const double p3 = 2 * (v[0] - v[1]) + v[2] - v[3];
    const double p4 = -v[0] + v[1] - v[2] + v[3];
    return p1 + d * (p2 + d * (p3 + d * p4));
  }
};

// Columns outside the image repeat its edge. Rows above it do so too; a row below it repeats what
// the row before gave.
template <typename Kernel>
struct Smooth {
  static bool Sample(const Image& image, double x, double y, uint8_t* out) {
    if (!(x >= 0 && x < image.width && y >= 0 && y < image.height)) return false;
    x -= 0.5;
    y -= 0.5;
    const int px = static_cast<int>(std::floor(x));
    const int py = static_cast<int>(std::floor(y));
    const double dx = x - px;
    const double dy = y - py;
    std::array<ptrdiff_t, Kernel::kTaps> columns;
    for (int i = 0; i < Kernel::kTaps; ++i) {
      columns[i] =
          static_cast<ptrdiff_t>(std::clamp(px - Kernel::kBefore + i, 0, image.width - 1)) *
          image.channels;
    }
    for (int c = 0; c < image.channels; ++c) {
      std::array<double, Kernel::kTaps> rows;
      for (int j = 0; j < Kernel::kTaps; ++j) {
        const int row = py - Kernel::kBefore + j;
        if (j > 0 && (row < 0 || row >= image.height)) {
          rows[j] = rows[j - 1];
          continue;
        }
        const uint8_t* const from = image.Row(std::clamp(row, 0, image.height - 1)) + c;
        std::array<double, Kernel::kTaps> taps;
        for (int i = 0; i < Kernel::kTaps; ++i) taps[i] = from[columns[i]];
        rows[j] = Kernel::Mix(taps, dx);
      }
      const double value = Kernel::Mix(rows, dy);
      out[c] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
    }
    return true;
  }
};

template <typename Sampler, typename Place>
void Generic(const Image& image, const Place& place, const Fill& fill, Size size, uint8_t* out) {
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x, out += image.channels) {
      const auto [from_x, from_y] = place(x + 0.5, y + 0.5);
      if (!Sampler::Sample(image, from_x, from_y, out)) Copy(fill.data(), image.channels, out);
    }
  }
}

template <typename Place>
void WithFilter(const Image& image, const Place& place, Filter filter, const Fill& fill, Size size,
                uint8_t* out) {
  switch (filter) {
    case Filter::kBilinear: return Generic<Smooth<Bilinear>>(image, place, fill, size, out);
    case Filter::kBicubic: return Generic<Smooth<Bicubic>>(image, place, fill, size, out);
    default: return Generic<Nearest>(image, place, fill, size, out);
  }
}

// What the nearest-neighbour cases of an affine matrix have in common: each output pixel is one
// input pixel or the fill.
void Take(const Image& image, int64_t x, int64_t y, const Fill& fill, uint8_t* out) {
  const bool is_inside = x >= 0 && x < image.width && y >= 0 && y < image.height;
  Copy(is_inside ? image.Row(static_cast<int>(y)) + x * image.channels : fill.data(),
       image.channels, out);
}

// Pillow adds the step up from pixel to pixel instead of multiplying; so the errors add up, too.
void NearestScaled(const Image& image, const AffineMatrix& m, const Fill& fill, Size size,
                   uint8_t* out) {
  double y = m[5] + m[4] * 0.5;
  for (int row = 0; row < size.height; ++row, y += m[4]) {
    const int from_y = PixelAt(y, image.height);
    double x = m[2] + m[0] * 0.5;
    for (int column = 0; column < size.width; ++column, x += m[0], out += image.channels) {
      Take(image, PixelAt(x, image.width), from_y, fill, out);
    }
  }
}

void NearestFixed(const Image& image, const AffineMatrix& m, const Fill& fill, Size size,
                  uint8_t* out) {
  const auto fixed = [](double value) {
    return static_cast<int64_t>(std::floor(value * 65536.0 + 0.5));
  };
  int64_t row_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
  int64_t row_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  for (int row = 0; row < size.height; ++row, row_x += fixed(m[1]), row_y += fixed(m[4])) {
    int64_t x = row_x;
    int64_t y = row_y;
    for (int column = 0; column < size.width; ++column, out += image.channels) {
      Take(image, x >> 16, y >> 16, fill, out);
      x += fixed(m[0]);
      y += fixed(m[3]);
    }
  }
}

void NearestAdded(const Image& image, const AffineMatrix& m, const Fill& fill, Size size,
                  uint8_t* out) {
  double row_x = m[2] + m[1] * 0.5 + m[0] * 0.5;
  double row_y = m[5] + m[4] * 0.5 + m[3] * 0.5;
  for (int row = 0; row < size.height; ++row, row_x += m[1], row_y += m[4]) {
    double x = row_x;
    double y = row_y;
    for (int column = 0; column < size.width; ++column, out += image.channels) {
      Take(image, PixelAt(x, image.width), PixelAt(y, image.height), fill, out);
      x += m[0];
      y += m[3];
    }
  }
}

bool FitsFixed(const AffineMatrix& m, double x, double y) {
  return std::fabs(x * m[0] + y * m[1] + m[2]) < 32768.0 &&
         std::fabs(x * m[3] + y * m[4] + m[5]) < 32768.0;
}
}  // namespace

void WarpAffine(const Image& image, const AffineMatrix& m, Filter filter, const Fill& fill,
                Size size, uint8_t* out) {
  if (filter != Filter::kNearest) {
    const auto place = [&](double x, double y) {
      return std::pair(m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]);
    };
    return WithFilter(image, place, filter, fill, size, out);
  }
  if (m[1] == 0 && m[3] == 0) return NearestScaled(image, m, fill, size, out);
  if (FitsFixed(m, 0, 0) && FitsFixed(m, size.width, size.height) && FitsFixed(m, 0, size.height) &&
      FitsFixed(m, size.width, 0)) {
    return NearestFixed(image, m, fill, size, out);
  }
  NearestAdded(image, m, fill, size, out);
}

void WarpPerspective(const Image& image, const PerspectiveMatrix& m, Filter filter,
                     const Fill& fill, Size size, uint8_t* out) {
  const auto place = [&](double x, double y) {
    const double divisor = m[6] * x + m[7] * y + 1;
    return std::pair((m[0] * x + m[1] * y + m[2]) / divisor,
                     (m[3] * x + m[4] * y + m[5]) / divisor);
  };
  WithFilter(image, place, filter, fill, size, out);
}

}  // namespace loaderd::transform
