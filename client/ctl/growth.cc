// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/growth.h"

#include <algorithm>
#include <tuple>

namespace loaderd::ctl {
namespace {

void MostGrownFirst(std::vector<Grown>& grown) {
  std::sort(grown.begin(), grown.end(), [](const Grown& a, const Grown& b) {
    return std::tie(b.growth, a.kind, a.target) < std::tie(a.growth, b.kind, b.target);
  });
}

template <typename Counts>
uint64_t CountOf(const Counts& counts, const typename Counts::key_type& key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

int64_t Difference(uint64_t now, uint64_t before) {
  return static_cast<int64_t>(now) - static_cast<int64_t>(before);
}

}  // namespace

uint64_t Snapshot::open() const {
  uint64_t sum = 0;
  for (const auto& [kind, count] : kinds) sum += count;
  return sum;
}

std::vector<Grown> KindGrowth(const Snapshot& baseline, const Snapshot& now) {
  std::vector<Grown> grown;
  std::map<std::string, uint64_t> either = baseline.kinds;
  either.insert(now.kinds.begin(), now.kinds.end());
  for (const auto& [kind, ignored] : either) {
    const uint64_t open = CountOf(now.kinds, kind);
    const int64_t growth = Difference(open, CountOf(baseline.kinds, kind));
    if (growth != 0) grown.push_back({kind, "", open, growth});
  }
  MostGrownFirst(grown);
  return grown;
}

std::vector<Grown> TargetGrowth(const Snapshot& baseline, const Snapshot& now) {
  std::vector<Grown> grown;
  for (const auto& [what, open] : now.targets) {
    const int64_t growth = Difference(open, CountOf(baseline.targets, what));
    if (growth > 0) grown.push_back({what.first, what.second, open, growth});
  }
  MostGrownFirst(grown);
  return grown;
}

std::vector<Grown> ByTarget(const Snapshot& now) { return TargetGrowth({}, now); }

}  // namespace loaderd::ctl
