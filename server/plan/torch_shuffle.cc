// SPDX-License-Identifier: Apache-2.0
#include "server/plan/torch_shuffle.h"

#include <numeric>
#include <random>
#include <utility>

namespace loaderd::plan {

std::vector<uint32_t> TorchRandpermNarrow(uint64_t n, uint64_t seed) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937 generator(static_cast<uint32_t>(seed));
  for (uint64_t i = 0; i + 1 < n; ++i) std::swap(order[i], order[i + generator() % (n - i)]);
  return order;
}

std::vector<uint32_t> TorchRandpermWide(uint64_t n, uint64_t seed) {
  std::vector<uint32_t> order(n);
  std::mt19937 generator(static_cast<uint32_t>(seed));
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t high = generator();
    const uint64_t low = generator();
    const uint64_t other = (high << 32 | low) % (i + 1);
    order[i] = order[other];
    order[other] = static_cast<uint32_t>(i);
  }
  return order;
}

std::vector<uint32_t> TorchRandperm(uint64_t n, uint64_t seed) {
  return n < kTorchWideDrawsFrom ? TorchRandpermNarrow(n, seed) : TorchRandpermWide(n, seed);
}

}  // namespace loaderd::plan
