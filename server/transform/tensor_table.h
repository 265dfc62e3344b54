// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/image.h"

namespace loaderd::transform {

// The tensor steps of a recipe. Each is a function of the 8-bit value and the channel alone, so
// together they are one table of 256 elements a channel. The arithmetic is torch's on a CPU: each
// operation rounds to the tensor's dtype, half to even; float16 and bfloat16 compute in float32.
// Build it, then Apply from any thread.
class TensorTable {
 public:
  // uint8, each value itself.
  explicit TensorTable(int channels);

  // ToTensor, ConvertImageDtype to a float: uint8 is converted, then divided by 255; a float is
  // rounded.
  void ToFloat(DType dtype);
  // Needs a float. One of `shifts` (mean) and `divisors` (std) for all channels or one for each;
  // they are first rounded to the dtype: kInvalidArgument, beginning "std[i]: ", when a divisor
  // becomes 0 by it.
  Status Normalize(const std::vector<double>& shifts, const std::vector<double>& divisors);

  DType dtype() const { return dtype_; }
  // The element's bits, in the low bytes.
  uint32_t At(int channel, uint8_t value) const;

  // Channels first. `out` has room for the image's pixels in dtype().
  void Apply(const Image& image, uint8_t* out) const;

 private:
  void Encode();

  DType dtype_ = DType::kUint8;
  std::vector<std::array<float, 256>> values_;
  // The values' bits in the dtype's width; one of the three is in use.
  std::vector<std::array<uint8_t, 256>> bits8_;
  std::vector<std::array<uint16_t, 256>> bits16_;
  std::vector<std::array<uint32_t, 256>> bits32_;
};

// What the tensor steps after a place in the recipe make of an element that is not in the table.
class TensorChain {
 public:
  // `dtype` is the tensor's there.
  explicit TensorChain(DType dtype) : start_(dtype), dtype_(dtype) {}

  // As TensorTable's, which has checked them.
  void ToFloat(DType dtype);
  void Normalize(std::vector<double> shifts, std::vector<double> divisors);

  DType dtype() const { return dtype_; }  // at the end
  // The bits, in the low bytes, of an element that was set to `value`. As uint8 it is cut to an
  // integer and taken modulo 256, as torch does.
  uint32_t Bits(int channel, float value) const;

 private:
  struct Link {
    DType dtype = DType::kFloat32;
    std::vector<double> shifts;  // none: a conversion
    std::vector<double> divisors;
  };
  DType start_;
  DType dtype_;
  std::vector<Link> links_;
};

}  // namespace loaderd::transform
