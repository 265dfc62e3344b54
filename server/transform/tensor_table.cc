// SPDX-License-Identifier: Apache-2.0
#include "server/transform/tensor_table.h"

#include <bit>
#include <cstring>
#include <string>
#include <utility>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "absl/strings/str_cat.h"
#include "server/transform/half.h"

namespace loaderd::transform {
namespace {

float Rounded(float value, DType dtype) {
  if (dtype == DType::kFloat16) return HalfValue(HalfBits(value));
  if (dtype == DType::kBfloat16) return BrainValue(BrainBits(value));
  return value;
}

float Rounded(double value, DType dtype) { return Rounded(static_cast<float>(value), dtype); }

float Converted(float value, DType from, DType to) {
  return Rounded(from == DType::kUint8 ? value / 255.0F : value, to);
}

// Past the caches: a batch is larger than they are, and nobody here reads it again. `to` is
// aligned.
void StreamWord(uint64_t word, uint8_t* to) {
#ifdef __SSE2__
  _mm_stream_si64(reinterpret_cast<long long*>(to), static_cast<long long>(word));
#else
  std::memcpy(to, &word, sizeof(word));
#endif
}

// Others see what was streamed before what is written after this.
void EndStreaming() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

// table[from[i * kStep]] for each i. `out` may be of any alignment.
template <size_t kStep, typename Element>
void LookUp(const Element* table, const uint8_t* from, size_t count, uint8_t* out) {
  static_assert(std::endian::native == std::endian::little);
  constexpr size_t kWord = sizeof(uint64_t) / sizeof(Element);
  const auto look_up_one = [&] {
    std::memcpy(out, &table[*from], sizeof(Element));
    from += kStep;
    out += sizeof(Element);
    --count;
  };
  while (count > 0 && reinterpret_cast<uintptr_t>(out) % sizeof(uint64_t) != 0) look_up_one();
  for (; count >= 2 * kWord; count -= 2 * kWord, from += 2 * kWord * kStep) {
    uint64_t words[2] = {0, 0};
#pragma GCC unroll 16
    for (size_t i = 0; i < 2 * kWord; ++i) {
      words[i / kWord] |= uint64_t{table[from[i * kStep]]} << (i % kWord * sizeof(Element) * 8);
    }
    StreamWord(words[0], out);
    StreamWord(words[1], out + sizeof(uint64_t));
    out += 2 * sizeof(uint64_t);
  }
  while (count > 0) look_up_one();
}

size_t Count(int count) { return static_cast<size_t>(count); }

// The one for all, or the channel's.
double Of(const std::vector<double>& values, size_t channel) {
  return values[values.size() == 1 ? 0 : channel];
}
}  // namespace

TensorTable::TensorTable(int channels) : values_(static_cast<size_t>(channels)) {
  for (std::array<float, 256>& channel : values_) {
    for (size_t v = 0; v < channel.size(); ++v) channel[v] = static_cast<float>(v);
  }
  Encode();
}

void TensorTable::ToFloat(DType dtype) {
  const bool was_uint8 = dtype_ == DType::kUint8;
  dtype_ = dtype;
  for (std::array<float, 256>& channel : values_) {
    for (float& value : channel)
      value = Converted(value, was_uint8 ? DType::kUint8 : DType::kFloat32, dtype);
  }
  Encode();
}

Status TensorTable::Normalize(const std::vector<double>& shifts,
                              const std::vector<double>& divisors) {
  for (size_t c = 0; c < values_.size(); ++c) {
    const size_t place = divisors.size() == 1 ? 0 : c;
    const float shift = Rounded(shifts[shifts.size() == 1 ? 0 : c], dtype_);
    const float divisor = Rounded(divisors[place], dtype_);
    if (divisor == 0) {
      return absl::InvalidArgumentError(absl::StrCat("std[", place, "]: ", divisors[place],
                                                     " is 0 as ", std::string(DTypeName(dtype_))));
    }
    for (float& value : values_[c]) {
      value = Rounded(Rounded(value - shift, dtype_) / divisor, dtype_);
    }
  }
  Encode();
  return absl::OkStatus();
}

void TensorTable::Encode() {
  bits8_.clear();
  bits16_.clear();
  bits32_.clear();
  const uint64_t bytes = DTypeBytes(dtype_);
  if (bytes == 1) bits8_.resize(values_.size());
  if (bytes == 2) bits16_.resize(values_.size());
  if (bytes == 4) bits32_.resize(values_.size());
  for (size_t c = 0; c < values_.size(); ++c) {
    for (size_t v = 0; v < 256; ++v) {
      const float value = values_[c][v];
      if (bytes == 1) bits8_[c][v] = static_cast<uint8_t>(value);
      if (bytes == 2) {
        bits16_[c][v] = dtype_ == DType::kFloat16 ? HalfBits(value) : BrainBits(value);
      }
      if (bytes == 4) bits32_[c][v] = std::bit_cast<uint32_t>(value);
    }
  }
}

uint32_t TensorTable::At(int channel, uint8_t value) const {
  const auto c = static_cast<size_t>(channel);
  if (!bits8_.empty()) return bits8_[c][value];
  if (!bits16_.empty()) return bits16_[c][value];
  return bits32_[c][value];
}

void TensorTable::Apply(const Image& image, uint8_t* out) const {
  const auto look_up = [&]<typename Element>(const std::vector<std::array<Element, 256>>& tables) {
    for (int c = 0; c < image.channels; ++c) {
      const Element* const table = tables[static_cast<size_t>(c)].data();
      for (int y = 0; y < image.height; ++y, out += sizeof(Element) * Count(image.width)) {
        if (image.channels == 1) {
          LookUp<1>(table, image.Row(y), Count(image.width), out);
        } else {
          LookUp<3>(table, image.Row(y) + c, Count(image.width), out);
        }
      }
    }
  };
  if (!bits8_.empty()) {
    look_up(bits8_);
  } else if (!bits16_.empty()) {
    look_up(bits16_);
  } else {
    look_up(bits32_);
  }
  EndStreaming();
}

void TensorChain::ToFloat(DType dtype) {
  dtype_ = dtype;
  links_.push_back({.dtype = dtype, .shifts = {}, .divisors = {}});
}

void TensorChain::Normalize(std::vector<double> shifts, std::vector<double> divisors) {
  links_.push_back({.dtype = dtype_, .shifts = std::move(shifts), .divisors = std::move(divisors)});
}

uint32_t TensorChain::Bits(int channel, float value) const {
  const auto c = static_cast<size_t>(channel);
  DType dtype = start_;
  value = dtype == DType::kUint8 ? static_cast<float>(static_cast<uint8_t>(static_cast<int>(value)))
                                 : Rounded(value, dtype);
  for (const Link& link : links_) {
    if (link.shifts.empty()) {
      value = Converted(value, dtype, link.dtype);
      dtype = link.dtype;
    } else {
      const float shift = Rounded(Of(link.shifts, c), dtype);
      const float divisor = Rounded(Of(link.divisors, c), dtype);
      value = Rounded(Rounded(value - shift, dtype) / divisor, dtype);
    }
  }
  if (dtype == DType::kUint8) return static_cast<uint8_t>(value);
  if (dtype == DType::kFloat16) return HalfBits(value);
  if (dtype == DType::kBfloat16) return BrainBits(value);
  return std::bit_cast<uint32_t>(value);
}

}  // namespace loaderd::transform
