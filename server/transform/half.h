// SPDX-License-Identifier: Apache-2.0
// float16 (IEEE 754 binary16) and bfloat16 as bits. Rounding is half to even. Without branches, so
// that loops over them become vector code.
#pragma once

#include <bit>
#include <cstdint>

namespace loaderd::transform {

// `value` without its low `bits`, rounded half to even.
inline uint32_t RoundOff(uint32_t value, int bits) {
  const uint32_t odd = value >> bits & 1;
  return (value + (uint32_t{1} << (bits - 1)) - 1 + odd) >> bits;
}

// A choice by masks: compilers make a jump of `?:` where one side is an operation on floats.
inline uint32_t Pick(bool first, uint32_t a, uint32_t b) {
  const uint32_t mask = uint32_t{0} - static_cast<uint32_t>(first);
  return (a & mask) | (b & ~mask);
}

inline uint16_t HalfBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint32_t normal = RoundOff(magnitude - 0x38000000, 13);
  // Below 2^-14: next to 0.5 a float's last place is 2^-24, a half's.
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000;
  const uint32_t special = Pick(magnitude > 0x7F800000, 0x7E00, 0x7C00);  // NaN, infinity
  const uint32_t finite = Pick(magnitude < 0x38800000, small, normal);
  const uint32_t half = Pick(magnitude >= 0x477FF000, special, finite);  // rounds past 65504
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | half);
}

inline float HalfValue(uint16_t bits) {
  const uint32_t sign = (uint32_t{bits} & 0x8000) << 16;
  const uint32_t magnitude = (uint32_t{bits} & 0x7FFF) << 13;
  // The exponents differ by 112; exact, also from a half below 2^-14.
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const uint32_t value = Pick(magnitude >= 0x0F800000, magnitude | 0x7F800000, finite);
  return std::bit_cast<float>(sign | value);
}

inline uint16_t BrainBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : RoundOff(bits, 16));
}

inline float BrainValue(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace loaderd::transform
