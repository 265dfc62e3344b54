// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files, format version 1.0:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace loaderd::ctl {

// Writes a C-ordered array. `dtype` is numpy's name; "bfloat16", which numpy does not have, is
// written as its 16 bits in uint16.
absl::Status WriteNpy(const std::string& path, std::string_view dtype,
                      std::span<const int64_t> shape, std::span<const std::byte> data);

}  // namespace loaderd::ctl
