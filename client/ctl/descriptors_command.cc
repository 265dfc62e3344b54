// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/descriptors_command.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/channel.h"
#include "client/ctl/format.h"
#include "client/ctl/growth.h"
#include "client/ctl/interrupt.h"
#include "client/ctl/json.h"
#include "server/base/descriptors.h"
#include "server/base/unique_fd.h"

namespace loaderd::ctl {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr size_t kShownTargets = 20;
constexpr auto kPoll = std::chrono::milliseconds(100);

// Where snapshots come from: the daemon's word, or /proc.
class Source {
 public:
  virtual ~Source() = default;
  // kNotFound or kUnavailable: the process is gone.
  virtual absl::StatusOr<Snapshot> Look() = 0;
  // Waits so long at most; false when the process has ended. Ctrl-C ends the wait.
  virtual bool Wait(steady_clock::duration limit) = 0;
};

class Process final : public Source {
 public:
  // The pidfd, taken before the first look, stays with this process when its number is used anew.
  explicit Process(int64_t pid)
      : pid_(pid), fd_(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0))) {}

  absl::StatusOr<Snapshot> Look() override {
    const std::string process = absl::StrCat(pid_);
    absl::StatusOr<std::vector<OpenDescriptor>> open = ListDescriptors(process);
    if (!open.ok()) return open.status();
    const absl::StatusOr<ResourceLimit> limit = ReadLimit(process, "Max open files");
    if (!limit.ok()) return limit.status();
    Snapshot snapshot{.pid = pid_,
                      .soft_limit = limit->soft,
                      .hard_limit = limit->hard,
                      .kinds = {},
                      .targets = {}};
    for (const OpenDescriptor& descriptor : *open) {
      ++snapshot.kinds[descriptor.kind];
      ++snapshot.targets[{descriptor.kind, Printable(descriptor.target)}];
    }
    // What has begun to exit, or is not yet waited for, has given up its descriptors already.
    if (Ended(0) || Exits())
      return absl::NotFoundError(absl::StrCat("process ", pid_, " has ended"));
    return snapshot;
  }

  bool Wait(steady_clock::duration limit) override {
    const auto end = steady_clock::now() + limit;
    while (!Interrupted()) {
      const auto left = end - steady_clock::now();
      if (left <= left.zero()) return !Ended(0);
      // In steps: a signal between the question and the wait would go unseen.
      const auto step = std::min<steady_clock::duration>(left, kPoll);
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(step).count();
      if (Ended(static_cast<int>(ms))) return false;
    }
    return true;
  }

 private:
  // Field 9 of /proc/PID/stat has PF_EXITING from before the descriptors are closed.
  bool Exits() const {
    constexpr uint64_t kExiting = 0x4;
    std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t name_end = text.rfind(')');  // the name before it may hold anything
    if (name_end == std::string::npos) return true;
    std::istringstream fields(text.substr(name_end + 1));
    std::string skipped;
    for (int field = 3; field < 9; ++field) fields >> skipped;
    uint64_t flags = 0;
    return !(fields >> flags) || (flags & kExiting) != 0;
  }

  bool Ended(int timeout_ms) {
    pollfd waited = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waited, fd_.ok() ? 1 : 0, timeout_ms);
    if (fd_.ok()) return ready > 0;
    return ::kill(static_cast<pid_t>(pid_), 0) != 0 && errno == ESRCH;  // a sandbox without pidfds
  }

  const int64_t pid_;
  const UniqueFd fd_;
};

class Daemon final : public Source {
 public:
  explicit Daemon(AdminChannel channel) : channel_(std::move(channel)) {}

  absl::StatusOr<v1::ListDescriptorsResponse> Ask() { return channel_.ListDescriptors(); }

  absl::StatusOr<Snapshot> Look() override {
    const absl::StatusOr<v1::ListDescriptorsResponse> answer = Ask();
    if (!answer.ok()) return answer.status();
    return SnapshotOf(*answer);
  }

  static Snapshot SnapshotOf(const v1::ListDescriptorsResponse& answer) {
    Snapshot snapshot{.pid = answer.pid(),
                      .soft_limit = answer.soft_limit(),
                      .hard_limit = answer.hard_limit(),
                      .kinds = {},
                      .targets = {}};
    for (const v1::DescriptorGroup& group : answer.group()) {
      if (group.session().empty()) snapshot.kinds[group.kind()] = group.open();
    }
    for (const v1::DescriptorTarget& target : answer.target()) {
      snapshot.targets[{target.kind(), target.target()}] = target.open();
    }
    return snapshot;
  }

  // Its end shows at the next look.
  bool Wait(steady_clock::duration limit) override {
    const auto end = steady_clock::now() + limit;
    while (!Interrupted() && steady_clock::now() < end) {
      std::this_thread::sleep_for(
          std::min<steady_clock::duration>(kPoll, end - steady_clock::now()));
    }
    return true;
  }

 private:
  AdminChannel channel_;
};

std::string LimitText(uint64_t limit) {
  return limit == ResourceLimit::kUnlimited ? "unlimited" : FormatCount(limit);
}

// "1,000 open of 1,024 (97.7 %), hard limit 4,096"
std::string ShareText(const Snapshot& snapshot) {
  const uint64_t open = snapshot.open();
  if (snapshot.soft_limit == ResourceLimit::kUnlimited || snapshot.soft_limit == 0) {
    return absl::StrCat(FormatCount(open), " open, soft limit ", LimitText(snapshot.soft_limit));
  }
  return absl::StrFormat(
      "%s open of %s (%.1f %%), hard limit %s", FormatCount(open), LimitText(snapshot.soft_limit),
      100.0 * static_cast<double>(open) / static_cast<double>(snapshot.soft_limit),
      LimitText(snapshot.hard_limit));
}

void PrintTargets(const std::vector<Grown>& targets, bool as_growth) {
  for (size_t i = 0; i < targets.size() && i < kShownTargets; ++i) {
    const Grown& one = targets[i];
    const std::string count =
        as_growth ? absl::StrFormat("%+d", one.growth) : FormatCount(one.open);
    std::printf("  %6s  %-9s  %s\n", count.c_str(), ForTerminal(one.kind).c_str(),
                ForTerminal(one.target).c_str());
  }
  if (targets.size() > kShownTargets) {
    std::printf("  ... and %s more (--json has all)\n",
                FormatCount(targets.size() - kShownTargets).c_str());
  }
}

std::string JsonRows(const std::vector<Grown>& rows, bool with_growth) {
  std::string items;
  for (const Grown& row : rows) {
    JsonObject item;
    item.Add("kind", row.kind);
    if (!row.target.empty()) item.Add("target", row.target);
    item.Add("open", row.open);
    if (with_growth) item.Add("growth", row.growth);
    items += (items.empty() ? "" : ",") + item.text();
  }
  return "[" + items + "]";
}

JsonObject JsonHead(const Snapshot& snapshot) {
  JsonObject head;
  head.Add("pid", snapshot.pid).Add("open", snapshot.open()).Add("soft_limit", snapshot.soft_limit);
  head.Add("hard_limit", snapshot.hard_limit);
  return head;
}

void PrintOnce(const Snapshot& snapshot, const v1::ListDescriptorsResponse& answer) {
  Table table({"KIND", ">OPEN", "SESSION", "DETAIL"});
  for (const v1::DescriptorGroup& g : answer.group()) {
    table.Add({ForTerminal(g.kind()), FormatCount(g.open()),
               g.session().empty() ? "-" : ForTerminal(g.session()), ForTerminal(g.detail())});
  }
  // What a session holds is a part of what is open by kind.
  table.Add({"all", FormatCount(snapshot.open()), "-", ""});
  table.Print(stdout);
  std::printf("\nprocess %lld: %s\n", static_cast<long long>(snapshot.pid),
              ShareText(snapshot).c_str());
  if (!snapshot.targets.empty()) PrintTargets(ByTarget(snapshot), false);
}

// A process's snapshot in the daemon's own words, so that both print alike.
v1::ListDescriptorsResponse GroupsOf(const Snapshot& snapshot) {
  v1::ListDescriptorsResponse answer;
  for (const auto& [kind, open] : snapshot.kinds) {
    v1::DescriptorGroup* group = answer.add_group();
    group->set_kind(kind);
    group->set_open(open);
  }
  return answer;
}

int Once(const Shared& shared, const Snapshot& snapshot,
         const v1::ListDescriptorsResponse& answer) {
  if (!shared.json) {
    PrintOnce(snapshot, answer);
    return kExitOk;
  }
  std::string groups;
  for (const v1::DescriptorGroup& group : answer.group()) {
    groups += (groups.empty() ? "" : ",") + JsonOf(group);
  }
  JsonObject whole = JsonHead(snapshot);
  whole.AddJson("fds", "[" + groups + "]");
  whole.AddJson("targets", JsonRows(ByTarget(snapshot), false));
  std::printf("%s\n", whole.text().c_str());
  return kExitOk;
}

// Reports against the baseline, one JSON line or some lines of text each.
class GrowthReport {
 public:
  GrowthReport(Snapshot baseline, bool json)
      : baseline_(std::move(baseline)), last_(baseline_), json_(json) {}

  void Begin(double interval_s) {
    if (json_) {
      Tell(baseline_, false);
    } else {
      std::printf("process %lld: %s; growth is told every %g s, Ctrl-C ends\n",
                  static_cast<long long>(baseline_.pid), ShareText(baseline_).c_str(), interval_s);
    }
    std::fflush(stdout);
  }

  void Show(const Snapshot& now) {
    const bool changed = now.targets != last_.targets || now.kinds != last_.kinds;
    last_ = now;
    if (json_ || changed) Tell(now, false);
    std::fflush(stdout);
  }

  // At Ctrl-C and at the process's end: what was seen last.
  void End(bool process_ended) {
    if (!json_) std::printf("%s\n", process_ended ? "the process has ended" : "stopped");
    Tell(last_, process_ended);
    std::fflush(stdout);
  }

 private:
  void Tell(const Snapshot& now, bool ended) const {
    const std::vector<Grown> kinds = KindGrowth(baseline_, now);
    const std::vector<Grown> targets = TargetGrowth(baseline_, now);
    const double seconds = duration<double>(steady_clock::now() - begin_).count();
    if (json_) {
      JsonObject line = JsonHead(now);
      line.Add("time_s", seconds).Add("baseline", baseline_.open()).Add("ended", ended);
      line.AddJson("kinds", JsonRows(kinds, true)).AddJson("targets", JsonRows(targets, true));
      std::printf("%s\n", line.text().c_str());
      return;
    }
    const auto growth = static_cast<int64_t>(now.open()) - static_cast<int64_t>(baseline_.open());
    std::printf("after %s: %s, %+lld", FormatSeconds(seconds).c_str(), ShareText(now).c_str(),
                static_cast<long long>(growth));
    for (const Grown& kind : kinds) {
      std::printf("%s%s %+lld", &kind == &kinds.front() ? ": " : ", ",
                  ForTerminal(kind.kind).c_str(), static_cast<long long>(kind.growth));
    }
    std::printf("\n");
    PrintTargets(targets, true);
  }

  const Snapshot baseline_;
  Snapshot last_;
  const bool json_;
  const steady_clock::time_point begin_ = steady_clock::now();
};

bool IsGone(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsUnavailable(status);
}

int Watch(const Shared& shared, Source& source, Snapshot baseline, double interval_s) {
  CatchInterrupts();
  GrowthReport report(std::move(baseline), shared.json);
  report.Begin(interval_s);
  const auto interval =
      std::chrono::duration_cast<steady_clock::duration>(duration<double>(interval_s));
  while (true) {
    const bool lives = source.Wait(interval);
    if (Interrupted() || !lives) {
      report.End(!lives);
      return kExitOk;
    }
    const absl::StatusOr<Snapshot> now = source.Look();
    if (now.ok()) {
      report.Show(*now);
    } else if (IsGone(now.status())) {
      report.End(true);
      return kExitOk;
    } else {
      return Fail(now.status());
    }
  }
}

}  // namespace

int DescriptorsCommand(const Shared& shared, const DescriptorsOptions& options) {
  if (options.pid) {
    Process process(*options.pid);
    absl::StatusOr<Snapshot> snapshot = process.Look();
    if (!snapshot.ok()) return Fail(snapshot.status());
    if (options.watch_s) return Watch(shared, process, *std::move(snapshot), *options.watch_s);
    return Once(shared, *snapshot, GroupsOf(*snapshot));
  }
  absl::StatusOr<AdminChannel> channel = AdminChannel::Connect(shared.socket);
  if (!channel.ok()) return Fail(channel.status());
  Daemon daemon(*std::move(channel));
  const absl::StatusOr<v1::ListDescriptorsResponse> answer = daemon.Ask();
  if (!answer.ok()) return Fail(answer.status());
  const Snapshot snapshot = Daemon::SnapshotOf(*answer);
  return options.watch_s ? Watch(shared, daemon, snapshot, *options.watch_s)
                         : Once(shared, snapshot, *answer);
}

}  // namespace loaderd::ctl
