// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace loaderd {

// A buffer that only grows, never clears and never copies: what a thread reuses from sample to
// sample. Not thread-safe.
class ByteBuffer {
 public:
  ByteBuffer() = default;
  // Begins as another's memory, which outlives what is made in it.
  explicit ByteBuffer(std::span<uint8_t> borrowed)
      : data_(borrowed.data()), capacity_(borrowed.size()) {}
  ByteBuffer(ByteBuffer&& other) noexcept { *this = std::move(other); }
  ByteBuffer& operator=(ByteBuffer&& other) noexcept {
    own_ = std::move(other.own_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  // The first `size` bytes, whose content is undefined after growth. Valid until the next call.
  std::span<uint8_t> Resize(size_t size) {
    if (size > capacity_) {
      capacity_ = std::max(size, capacity_ + capacity_ / 2);
      own_.reset(new uint8_t[capacity_]);
      data_ = own_.get();
    }
    size_ = size;
    return {data_, size_};
  }
  std::span<uint8_t> bytes() { return {data_, size_}; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  size_t capacity() const { return capacity_; }
  // Gives the memory back.
  void Free() {
    own_.reset();
    data_ = nullptr;
    size_ = capacity_ = 0;
  }

 private:
  std::unique_ptr<uint8_t[]> own_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace loaderd
