// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace loaderd {

// A buffer that only grows, never clears and never copies: what a thread reuses from sample to
// sample. Not thread-safe.
class ByteBuffer {
 public:
  // The first `size` bytes, whose content is undefined after growth. Valid until the next call.
  std::span<uint8_t> Resize(size_t size) {
    if (size > capacity_) {
      capacity_ = std::max(size, capacity_ + capacity_ / 2);
      bytes_.reset(new uint8_t[capacity_]);
    }
    size_ = size;
    return {bytes_.get(), size_};
  }
  std::span<uint8_t> bytes() { return {bytes_.get(), size_}; }
  std::span<const uint8_t> bytes() const { return {bytes_.get(), size_}; }
  size_t capacity() const { return capacity_; }
  // Gives the memory back.
  void Free() {
    bytes_.reset();
    size_ = capacity_ = 0;
  }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace loaderd
