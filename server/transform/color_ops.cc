// SPDX-License-Identifier: Apache-2.0
#include "server/transform/color_ops.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace loaderd::transform {
namespace {
using Table = std::array<uint8_t, 256>;
using Tables = std::array<Table, 3>;  // one a channel
using Histogram = std::array<uint64_t, 256>;

uint8_t Clip(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

// Image.blend: between the two it cuts, outside of them it clips and cuts. In float.
uint8_t Blend(int from, int to, float alpha) {
  const float value = static_cast<float>(from) + alpha * static_cast<float>(to - from);
  if (value <= 0.0F) return 0;
  if (value >= 255.0F) return 255;
  return static_cast<uint8_t>(value);
}

// `pixel(from, to, x, y)` makes one pixel.
template <typename Pixel>
Image EachPixel(const Image& image, ImageMemory& memory, const Pixel& pixel) {
  uint8_t* to = memory.Next().Resize(image.Bytes()).data();
  const Image result = Contiguous(to, image.height, image.width, image.channels);
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* from = image.Row(y);
    for (int x = 0; x < image.width; ++x, from += image.channels, to += image.channels) {
      pixel(from, to, x, y);
    }
  }
  return result;
}

Image LookUp(const Image& image, const Table& table, ImageMemory& memory) {
  uint8_t* to = memory.Next().Resize(image.Bytes()).data();
  const Image result = Contiguous(to, image.height, image.width, image.channels);
  for (int y = 0; y < image.height; ++y, to += image.RowBytes()) {
    std::transform(image.Row(y), image.Row(y) + image.RowBytes(), to,
                   [&](uint8_t value) { return table[value]; });
  }
  return result;
}

Image LookUp(const Image& image, const Tables& tables, ImageMemory& memory) {
  if (image.channels == 1) return LookUp(image, tables[0], memory);
  return EachPixel(image, memory, [&](const uint8_t* from, uint8_t* to, int, int) {
    for (size_t c = 0; c < 3; ++c) to[c] = tables[c][from[c]];
  });
}

Table Identity() {
  Table table;
  for (size_t v = 0; v < 256; ++v) table[v] = static_cast<uint8_t>(v);
  return table;
}

std::array<Histogram, 3> HistogramsOf(const Image& image) {
  std::array<Histogram, 3> counts{};
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* from = image.Row(y);
    for (int x = 0; x < image.width; ++x, from += image.channels) {
      for (int c = 0; c < image.channels; ++c) ++counts[static_cast<size_t>(c)][from[c]];
    }
  }
  return counts;
}

uint8_t GreyOf(const uint8_t* pixel, int channels) { return channels == 3 ? Luma(pixel) : *pixel; }

// ImageStat's mean of the grey image, rounded half up.
int MeanGrey(const Image& image) {
  uint64_t sum = 0;
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* from = image.Row(y);
    for (int x = 0; x < image.width; ++x, from += image.channels) {
      sum += GreyOf(from, image.channels);
    }
  }
  const double count = static_cast<double>(image.height) * image.width;
  return static_cast<int>(static_cast<double>(sum) / count + 0.5);
}

Image BlendFromValue(const Image& image, int value, double factor, ImageMemory& memory) {
  Table table;
  for (int v = 0; v < 256; ++v) {
    table[static_cast<size_t>(v)] = Blend(value, v, static_cast<float>(factor));
  }
  return LookUp(image, table, memory);
}

struct Hsv {
  uint8_t h = 0, s = 0, v = 0;
};

// Pillow's conversions: float variables, double constants.
Hsv ToHsv(const uint8_t* rgb) {
  const uint8_t r = rgb[0], g = rgb[1], b = rgb[2];
  const uint8_t most = std::max({r, g, b});
  const uint8_t least = std::min({r, g, b});
  if (least == most) return {.v = most};
  const auto range = static_cast<float>(most - least);
  const float s = range / static_cast<float>(most);
  const float rc = static_cast<float>(most - r) / range;
  const float gc = static_cast<float>(most - g) / range;
  const float bc = static_cast<float>(most - b) / range;
  float h = 0;
  if (r == most) {
    h = bc - gc;
  } else if (g == most) {
    h = static_cast<float>(2.0 + double{rc} - double{bc});
  } else {
    h = static_cast<float>(4.0 + double{gc} - double{rc});
  }
  h = static_cast<float>(std::fmod(double{h} / 6.0 + 1.0, 1.0));
  return {.h = Clip(static_cast<int>(double{h} * 255.0)),
          .s = Clip(static_cast<int>(double{s} * 255.0)),
          .v = most};
}

void ToRgb(const Hsv& hsv, uint8_t* rgb) {
  const uint8_t v = hsv.v;
  if (hsv.s == 0) {
    rgb[0] = rgb[1] = rgb[2] = v;
    return;
  }
  const double sixths = double{static_cast<float>(hsv.h)} * 6.0 / 255.0;
  const int sector = static_cast<int>(std::floor(sixths));
  const auto f = static_cast<float>(sixths - double{static_cast<float>(sector)});
  const auto s = static_cast<float>(double{static_cast<float>(hsv.s)} / 255.0);
  const uint8_t p = Clip(static_cast<int>(std::round(v * (1.0 - double{s}))));
  const uint8_t q = Clip(static_cast<int>(std::round(v * (1.0 - double{s * f}))));
  const uint8_t t = Clip(static_cast<int>(std::round(v * (1.0 - double{s} * (1.0 - double{f})))));
  const std::array<std::array<uint8_t, 3>, 6> sectors = {
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  const auto& pixel = sectors[static_cast<size_t>(sector % 6)];
  std::copy(pixel.begin(), pixel.end(), rgb);
}
}  // namespace

Image AdjustBrightness(const Image& image, double factor, ImageMemory& memory) {
  return BlendFromValue(image, 0, factor, memory);
}

Image AdjustContrast(const Image& image, double factor, ImageMemory& memory) {
  return BlendFromValue(image, MeanGrey(image), factor, memory);
}

Image AdjustSaturation(const Image& image, double factor, ImageMemory& memory) {
  if (image.channels == 1) return image;
  const auto alpha = static_cast<float>(factor);
  return EachPixel(image, memory, [&](const uint8_t* from, uint8_t* to, int, int) {
    const uint8_t grey = Luma(from);
    for (int c = 0; c < 3; ++c) to[c] = Blend(grey, from[c], alpha);
  });
}

Image AdjustSharpness(const Image& image, double factor, ImageMemory& memory) {
  if (image.height < 3 || image.width < 3) return image;
  const auto alpha = static_cast<float>(factor);
  // ImageFilter.SMOOTH, added up in Pillow's order: the row below, the row, the row above.
  constexpr float kSide = 1.0F / 13.0F;
  constexpr float kMiddle = 5.0F / 13.0F;
  return EachPixel(image, memory, [&](const uint8_t* from, uint8_t* to, int x, int y) {
    const bool is_edge = x == 0 || y == 0 || x == image.width - 1 || y == image.height - 1;
    for (int c = 0; c < image.channels; ++c) {
      if (is_edge) {
        to[c] = from[c];
        continue;
      }
      const int d = image.channels;
      const uint8_t* const above = from + c - image.stride;
      const uint8_t* const here = from + c;
      const uint8_t* const below = from + c + image.stride;
      float sum = 0.5F;
      sum += static_cast<float>(below[-d]) * kSide + static_cast<float>(below[0]) * kSide +
             static_cast<float>(below[d]) * kSide;
      sum += static_cast<float>(here[-d]) * kSide + static_cast<float>(here[0]) * kMiddle +
             static_cast<float>(here[d]) * kSide;
      sum += static_cast<float>(above[-d]) * kSide + static_cast<float>(above[0]) * kSide +
             static_cast<float>(above[d]) * kSide;
      const int smooth = sum >= 255.0F ? 255 : static_cast<int>(sum);
      to[c] = Blend(smooth, from[c], alpha);
    }
  });
}

Image AdjustHue(const Image& image, double factor, ImageMemory& memory) {
  if (image.channels == 1) return image;
  const auto turn = static_cast<uint8_t>(static_cast<int>(factor * 255));
  return EachPixel(image, memory, [&](const uint8_t* from, uint8_t* to, int, int) {
    Hsv hsv = ToHsv(from);
    hsv.h = static_cast<uint8_t>(hsv.h + turn);  // goes round
    ToRgb(hsv, to);
  });
}

Image Posterize(const Image& image, int bits, ImageMemory& memory) {
  Table table;
  const int mask = ~((1 << (8 - bits)) - 1);
  for (int v = 0; v < 256; ++v) table[static_cast<size_t>(v)] = static_cast<uint8_t>(v & mask);
  return LookUp(image, table, memory);
}

Image Solarize(const Image& image, double threshold, ImageMemory& memory) {
  Table table;
  for (int v = 0; v < 256; ++v) {
    table[static_cast<size_t>(v)] = static_cast<uint8_t>(v < threshold ? v : 255 - v);
  }
  return LookUp(image, table, memory);
}

Image Invert(const Image& image, ImageMemory& memory) { return Solarize(image, 0, memory); }

Image AutoContrast(const Image& image, ImageMemory& memory) {
  const std::array<Histogram, 3> counts = HistogramsOf(image);
  Tables tables;
  for (size_t c = 0; c < static_cast<size_t>(image.channels); ++c) {
    const auto is_used = [](uint64_t count) { return count != 0; };
    const auto low = std::find_if(counts[c].begin(), counts[c].end(), is_used) - counts[c].begin();
    const auto high =
        255 - (std::find_if(counts[c].rbegin(), counts[c].rend(), is_used) - counts[c].rbegin());
    tables[c] = Identity();
    if (high <= low) continue;
    const double scale = 255.0 / static_cast<double>(high - low);
    const double offset = static_cast<double>(-low) * scale;
    for (int v = 0; v < 256; ++v) {
      tables[c][static_cast<size_t>(v)] = Clip(static_cast<int>(v * scale + offset));
    }
  }
  return LookUp(image, tables, memory);
}

Image Equalize(const Image& image, ImageMemory& memory) {
  const std::array<Histogram, 3> counts = HistogramsOf(image);
  const uint64_t pixels = static_cast<uint64_t>(image.height) * static_cast<uint64_t>(image.width);
  Tables tables;
  for (size_t c = 0; c < static_cast<size_t>(image.channels); ++c) {
    tables[c] = Identity();
    const auto last = std::find_if(counts[c].rbegin(), counts[c].rend(),
                                   [](uint64_t count) { return count != 0; });
    // With one value only, nothing is left of the pixels, and the step is 0 too.
    const uint64_t step = (pixels - *last) / 255;
    if (step == 0) continue;
    uint64_t sum = step / 2;
    for (size_t v = 0; v < 256; ++v) {
      tables[c][v] = static_cast<uint8_t>(std::min<uint64_t>(sum / step, 255));
      sum += counts[c][v];
    }
  }
  return LookUp(image, tables, memory);
}

}  // namespace loaderd::transform
