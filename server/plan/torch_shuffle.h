// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace loaderd::plan {

// torch.randperm(n) on the CPU after torch.Generator().manual_seed(seed), for n <= 2^32 - 1:
// Fisher-Yates over MT19937 (Matsumoto and Nishimura 1998), which torch seeds with the low 32 bits
// of the seed. Pure; takes 4 * n bytes.
std::vector<uint32_t> TorchRandperm(uint64_t n, uint64_t seed);

// Torch draws in another way from this n on, so that the remainder of a 32-bit draw is not skewed.
inline constexpr uint64_t kTorchWideDrawsFrom = UINT32_MAX / 20;

// The two ways apart, each for any n.
std::vector<uint32_t> TorchRandpermNarrow(uint64_t n, uint64_t seed);
std::vector<uint32_t> TorchRandpermWide(uint64_t n, uint64_t seed);

}  // namespace loaderd::plan
