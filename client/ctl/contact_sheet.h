// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace loaderd::ctl {

// uint8 images of one size, grey or RGB, anywhere in memory.
struct Images {
  const uint8_t* data = nullptr;
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;                                                             // 1 or 3
  int64_t image_stride = 0, row_stride = 0, column_stride = 0, channel_stride = 0;  // in bytes
};

// Reads an (N, H, W, C) or (N, C, H, W) array; kInvalidArgument for what is neither.
absl::Status ImagesOf(const uint8_t* data, int64_t count, std::span<const int64_t> shape,
                      std::span<const int64_t> stride_bytes, Images& images);

// All of them in one PNG, in rows, as square as it goes.
absl::Status WriteContactSheet(const std::string& path, const Images& images);

}  // namespace loaderd::ctl
