// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/options.h"

#include <CLI/CLI.hpp>

namespace loaderd::daemon {
namespace {

constexpr char kAbout[] =
    "loaderd feeds training processes with decoded batches over Unix sockets.\n"
    "\n"
    "Two ways to run it:\n"
    "  loaderd --config FILE   the system daemon, for all users that its socket admits\n"
    "  loaderd --user          the daemon of one user; needs no file and no rights";

constexpr char kFooter[] =
    "Signals: SIGTERM and SIGINT stop it within stop_deadline_s (default 10), SIGHUP reads the "
    "dataset\n"
    "definitions again.\n"
    "Exit codes: 0 stopped as asked; 1 the configuration, the sockets or the limits do not do (the "
    "reason\n"
    "is on standard error); 2 the command line is wrong.\n"
    "Environment: LISTEN_FDS (systemd.socket(5)), NOTIFY_SOCKET and WATCHDOG_USEC "
    "(systemd.service(5)),\n"
    "STATE_DIRECTORY (systemd.exec(5)), or XDG_STATE_HOME and HOME with --user.";

constexpr int kUsageError = 2;

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv) {
  ParsedCommandLine parsed;
  CommandLine& command = parsed.command;
  CLI::App app(kAbout, "loaderd");
  app.footer(kFooter);
  app.set_version_flag("--version", "loaderd " LOADERD_VERSION, "Print the version and leave");
  CLI::Option* config = app.add_option(
      "--config", command.config_file,
      "Configuration in protobuf text format; with datasets.d/*.txtpb in its folder (system mode)");
  config->type_name("FILE");
  CLI::Option* user =
      app.add_flag("--user", command.user_mode,
                   "Serve only the calling user, at $XDG_RUNTIME_DIR/loaderd/loaderd.sock (else\n"
                   "/run/user/UID/loaderd/, else /tmp/loaderd-UID/)");
  app.add_option("--idle-exit", command.idle_exit_s,
                 "Leave S seconds after the last connection; 0: never")
      ->type_name("S")
      ->capture_default_str()
      ->check(CLI::Range(uint32_t{0}, uint32_t{31536000}))
      ->needs(user);
  app.add_option(
         "--socket", command.socket,
         "Path of the socket, in place of the configuration's; the segment socket stands beside it")
      ->type_name("PATH")
      ->needs(user);
  CLI::Option* check = app.add_flag(
      "--check", command.check, "Check the configuration, print `ok` or every error, and leave");
  CLI::Option* needs = app.add_flag(
      "--needs", command.needs,
      "Print as JSON what the configuration asks of the machine (descriptors, threads, memory),\n"
      "and leave");
  needs->excludes(check);
  app.add_flag("--detach", command.detach,
               "Go on in the background and return once both sockets listen")
      ->excludes(check)
      ->excludes(needs);
  try {
    app.parse(argc, argv);
    if (!command.user_mode && command.config_file.empty())
      throw CLI::RequiredError("--config FILE or --user");
    if (config->count() > 0 && command.config_file.empty())
      throw CLI::ValidationError("--config", "names no file");
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = app.exit(error) == 0 ? 0 : kUsageError;
  }
  return parsed;
}

}  // namespace loaderd::daemon
