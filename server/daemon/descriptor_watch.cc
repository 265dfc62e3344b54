// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/descriptor_watch.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/descriptors.h"
#include "server/base/log.h"

namespace loaderd::daemon {
namespace {

constexpr std::chrono::seconds kInterval{2};
constexpr uint64_t kRaiseAt = 80;  // per cent
constexpr uint64_t kFallBelow = 70;

// open / limit against per cent, without overflow where the limit is unlimited.
bool Reaches(uint64_t open, uint64_t limit, uint64_t percent) {
  return limit != 0 && static_cast<double>(open) * 100 >=
                           static_cast<double>(limit) * static_cast<double>(percent);
}

}  // namespace

DescriptorAlarm::Turn DescriptorAlarm::Look(uint64_t open, uint64_t limit) {
  if (!raised_ && Reaches(open, limit, kRaiseAt)) {
    raised_ = true;
    return Turn::kRaised;
  }
  if (raised_ && !Reaches(open, limit, kFallBelow)) {
    raised_ = false;
    return Turn::kFallen;
  }
  return Turn::kNone;
}

std::string DescriptorWarning(uint64_t open, uint64_t limit,
                              const std::map<std::string, uint64_t>& kinds) {
  std::vector<std::pair<std::string, uint64_t>> most(kinds.begin(), kinds.end());
  std::stable_sort(most.begin(), most.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string line = absl::StrCat("descriptors open=", open, " limit=", limit,
                                  " percent=", limit == 0 ? 100 : open * 100 / limit);
  for (const auto& [kind, count] : most) absl::StrAppend(&line, " ", kind, "=", count);
  return line +
         "; LimitNOFILE= of the unit or `ulimit -n` raises it, `loaderctl fds` tells what "
         "they are";
}

void DescriptorWatch::Start() { Look(); }

void DescriptorWatch::Look() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    const uint64_t open = CountOwnDescriptors();
    switch (alarm_.Look(open, limit.rlim_cur)) {
      case DescriptorAlarm::Turn::kRaised:
        LogWarning(DescriptorWarning(open, limit.rlim_cur, CountOwnDescriptorsByKind()));
        break;
      case DescriptorAlarm::Turn::kFallen:
        LogInfo(
            absl::StrCat("descriptors are enough again open=", open, " limit=", limit.rlim_cur));
        break;
      case DescriptorAlarm::Turn::kNone: break;
    }
  }
  timer_.expires_after(kInterval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Look();
  });
}

}  // namespace loaderd::daemon
