// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/lifecycle.h"

#include <systemd/sd-daemon.h>
#include <time.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>  // before Asio, which uses std::exchange without it

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/base/mutex.h"

namespace loaderd::daemon {
namespace {

void Notify(const std::string& state) {
  if (const int result = ::sd_notify(0, state.c_str()); result < 0) {
    LogWarning(absl::StrCat("the service manager is not told: ",
                            ErrnoStatus(-result, "sd_notify").message()));
  }
}

std::optional<std::chrono::microseconds> WatchdogLimit() {
  uint64_t limit_us = 0;
  if (::sd_watchdog_enabled(0, &limit_us) <= 0 || limit_us == 0) return std::nullopt;
  return std::chrono::microseconds(limit_us);
}

}  // namespace

StatusOr<std::vector<PassedDescriptor>> TakePassedDescriptors() {
  std::vector<PassedDescriptor> passed;
  char** names = nullptr;
  const int count = ::sd_listen_fds_with_names(/*unset_environment=*/1, &names);
  if (count < 0) {
    return ErrnoStatus(
        -count, "LISTEN_FDS: the passed descriptors cannot be taken (closed, or a bad number)");
  }
  for (int i = 0; i < count; ++i) {
    passed.push_back({UniqueFd(SD_LISTEN_FDS_START + i), names[i]});
    std::free(names[i]);
  }
  std::free(names);
  return passed;
}

namespace notify {

void Ready() { Notify("READY=1"); }

void Reloading() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // the protocol wants this clock by name
  const uint64_t us =
      static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
  Notify(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", us));
}

void StatusText(const std::string& text) { Notify(absl::StrCat("STATUS=", text)); }

void Stopping(std::chrono::milliseconds limit) {
  // From here on the loop may wait for others; it ends by its own deadline.
  const int64_t us = std::chrono::microseconds(limit + std::chrono::seconds(5)).count();
  Notify(absl::StrCat("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=", us));
  if (WatchdogLimit()) Notify(absl::StrCat("WATCHDOG=1\nWATCHDOG_USEC=", us));
}

}  // namespace notify

struct Watchdog::Impl {
  Impl(boost::asio::io_context& io, std::chrono::microseconds limit, std::function<bool()> healthy)
      : interval(limit / 2),
        timer(io),
        healthy(std::move(healthy)),
        asker([this, &io] { AskForEver(io); }) {
    Tick();
  }

  ~Impl() {
    {
      MutexLock lock(mutex);
      stopping = true;
    }
    changed.NotifyAll();
    asker.join();
    *alive = false;
  }

  void Tick() {
    {
      // While the last question is unanswered this changes nothing.
      MutexLock lock(mutex);
      asked = true;
    }
    changed.NotifyAll();
    timer.expires_after(interval);
    timer.async_wait([this, alive = alive](const boost::system::error_code& error) {
      if (!error && *alive) Tick();
    });
  }

  void AskForEver(boost::asio::io_context& io) {
    while (true) {
      {
        MutexLock lock(mutex);
        while (!asked && !stopping) changed.Wait(mutex);
        if (stopping) return;
      }
      const bool answer = healthy();
      if (answer) {
        boost::asio::post(io, [alive = alive] {
          if (*alive) Notify("WATCHDOG=1");
        });
      } else {
        LogWarning("watchdog: the daemon did not answer itself in time");
      }
      MutexLock lock(mutex);
      asked = false;
    }
  }

  const std::chrono::microseconds interval;
  boost::asio::steady_timer timer;
  const std::function<bool()> healthy;
  Mutex mutex;
  CondVar changed;
  bool asked ABSL_GUARDED_BY(mutex) = false;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  // shared_ptr: a posted answer, or an expiry that was queued already, may come after the end. Read
  // and written on the loop's thread.
  const std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  std::thread asker;  // the last: it uses all of the above
};

Watchdog::Watchdog(boost::asio::io_context& io, std::function<bool()> healthy) {
  if (const auto limit = WatchdogLimit())
    impl_ = std::make_unique<Impl>(io, *limit, std::move(healthy));
}

Watchdog::~Watchdog() = default;

}  // namespace loaderd::daemon
