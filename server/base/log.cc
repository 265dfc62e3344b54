// SPDX-License-Identifier: Apache-2.0
#include "server/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace loaderd {
namespace {

// sd-daemon(3): a line that begins with "<N>" has syslog priority N.
std::string_view Prefix(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "<7>";
    case LogLevel::kInfo: return "<6>";
    case LogLevel::kWarning: return "<4>";
    case LogLevel::kError: return "<3>";
  }
  return "<6>";
}

spdlog::level::level_enum Level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

bool ForJournal() {
  static const bool journal = std::getenv("JOURNAL_STREAM") != nullptr;
  return journal;
}

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    // shared_ptr: spdlog's own interface.
    auto made = std::make_shared<spdlog::logger>("loaderd",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern(ForJournal() ? "%v" : "%Y-%m-%d %H:%M:%S.%e %L %v");
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(LogLevel least) { Logger().set_level(Level(least)); }

void Log(LogLevel level, std::string_view line) {
  if (ForJournal()) {
    Logger().log(Level(level), "{}{}", Prefix(level), line);
  } else {
    Logger().log(Level(level), "{}", line);
  }
}

}  // namespace loaderd
