// SPDX-License-Identifier: Apache-2.0
// Pillow's Image.resize, bit for bit. Two passes of a separable filter whose support grows with the
// reduction (so that it also smooths); weights in double, normalised, rounded to 22 fractional
// bits; 8 bits between the passes.
#pragma once

#include <cstdint>
#include <vector>

#include "server/base/byte_buffer.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/image.h"
#include "server/transform/resample_kernels.h"

namespace loaderd::transform {

// Sizes before they are checked; exact where an int would overflow.
struct WideSize {
  int64_t height = 0;
  int64_t width = 0;
};

// kDataLoss when an image of `size` is empty or has more than `max_pixels`; `what` names it.
Status CheckPixels(const WideSize& size, uint64_t max_pixels, const char* what);

// A resize of which a part may be enough.
struct Resizing {
  struct RealBox {
    double top = 0, left = 0, height = 0, width = 0;
  };
  Size in;            // of the image before; neither of the two is empty
  Size out;           // and after it
  Box wanted;         // of the image after it; not empty
  RealBox from = {};  // the part of the image before that is resized; empty: all of it
  Filter filter = Filter::kNearest;
  Reference reference = Reference::kPillow13;

  bool all() const { return from.height == 0; }
  bool keeps_size() const { return all() && in == out; }
};

// Keeps weights and memory from image to image. Not thread-safe.
class Resampler {
 public:
  // The part of the image before that the wanted part of the one after is made of.
  Box Needed(const Resizing& resizing);

  // The wanted part, in `out`; or a view of `source`, where the size stays. `source` is `given` of
  // the image before, which holds what is needed. Pillow 12 filters rows first, always; Pillow 13
  // filters columns first where that is much less work. kDataLoss where the whole image between the
  // passes would have more than `max_pixels`.
  StatusOr<Image> Resize(const Image& source, const Box& given, const Resizing& resizing,
                         uint64_t max_pixels, ByteBuffer& out);

  // All of `source` to `size`.
  StatusOr<Image> Resize(const Image& source, Size size, Filter filter, Reference reference,
                         uint64_t max_pixels, ByteBuffer& out);

  // Gives back what is larger than `bytes`.
  void Trim(size_t bytes);

 private:
  // One side of a resizing: `from` on, for `length`, of `in` pixels become `out`.
  struct Side {
    int in = 0;
    double from = 0;
    double length = 0;
    int out = 0;
    friend bool operator==(const Side&, const Side&) = default;
  };
  struct Axis {
    Side side;
    Filter filter = Filter::kNearest;  // has no table: fits no request
    FilterTable table;
  };
  const FilterTable& TableFor(const Side& side, Filter filter, Axis& axis);
  const FilterTable& RowTable(const Resizing& resizing);
  const FilterTable& ColumnTable(const Resizing& resizing);
  Image PickNearest(const Image& source, Size size, ByteBuffer& out);

  Axis rows_, columns_;
  std::vector<double> weights_;  // of one window
  std::vector<int> picked_;      // NEAREST: source column of each output column, -1 outside
  ByteBuffer between_, extra_;
};

}  // namespace loaderd::transform
