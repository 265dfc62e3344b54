// SPDX-License-Identifier: Apache-2.0
// Open descriptors as counts, and what came on top of a baseline. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace loaderd::ctl {

// What a process has open at one moment.
struct Snapshot {
  int64_t pid = 0;
  uint64_t soft_limit = 0;
  uint64_t hard_limit = 0;
  std::map<std::string, uint64_t> kinds;
  // By kind and target; empty where the daemon does not tell them to this caller.
  std::map<std::pair<std::string, std::string>, uint64_t> targets;

  uint64_t open() const;
};

struct Grown {
  std::string kind;
  std::string target;  // empty: the whole kind
  uint64_t open = 0;
  int64_t growth = 0;
};

// The kinds whose number differs, the most grown first.
std::vector<Grown> KindGrowth(const Snapshot& baseline, const Snapshot& now);
// The targets that are open more often than in the baseline, the most grown first, else by name.
std::vector<Grown> TargetGrowth(const Snapshot& baseline, const Snapshot& now);
// The targets by number, the most first.
std::vector<Grown> ByTarget(const Snapshot& now);

}  // namespace loaderd::ctl
