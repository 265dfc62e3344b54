// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/config_command.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/ctl/daemon_process.h"
#include "client/ctl/json.h"

namespace loaderd::ctl {

int ConfigCheckCommand(const Shared& shared, const std::string& file) {
  absl::StatusOr<Finished> check = RunDaemon({"--check", "--config", file});
  if (!check.ok()) return Fail(check.status());
  if (!shared.json) {
    std::fputs(check->output.c_str(), check->exit_code == 0 ? stdout : stderr);
    return check->exit_code;
  }
  std::string lines;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(check->output, "\n", absl::SkipEmpty()))) {
    lines += lines.empty() ? "" : ",";
    lines += JsonQuote(line);
  }
  JsonObject result;
  result.Add("file", file).Add("valid", check->exit_code == 0).Add("exit_code", check->exit_code);
  std::printf("%s\n", result.AddJson("output", "[" + lines + "]").text().c_str());
  return check->exit_code;
}

}  // namespace loaderd::ctl
