// SPDX-License-Identifier: Apache-2.0
// One line an event: `LogInfo("session s-3 opened uid=1000 slots=5")`, key=value, the session
// first. Only engine, rpc and daemon log; everything else returns a Status. Under journald
// (JOURNAL_STREAM) lines carry a priority prefix, on a terminal a time. Thread-safe. One line never
// holds a line feed: Printable() the operands.
#pragma once

#include <string_view>

namespace loaderd {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void SetLogLevel(LogLevel least);
void Log(LogLevel level, std::string_view line);
inline void LogDebug(std::string_view line) { Log(LogLevel::kDebug, line); }
inline void LogInfo(std::string_view line) { Log(LogLevel::kInfo, line); }
inline void LogWarning(std::string_view line) { Log(LogLevel::kWarning, line); }
inline void LogError(std::string_view line) { Log(LogLevel::kError, line); }

}  // namespace loaderd
