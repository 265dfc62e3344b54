// SPDX-License-Identifier: Apache-2.0
// From the command line to a running Daemon.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/daemon/daemon.h"
#include "server/daemon/options.h"
#include "server/daemon/sizes.h"
#include "server/daemon/state_dir.h"

namespace loaderd::daemon {
namespace {

constexpr int kFailure = 1;

// A starter may have closed 0, 1 or 2; then a socket would get that number, and the log's lines
// with it. What a library opened there while it was loaded is close-on-exec, which no standard
// stream is: this process then starts anew with all three open.
bool FillStandardStreams(char** argv) {
  bool anew = false;
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    const int flags = ::fcntl(stream, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) continue;
    anew = anew || flags >= 0;
    const int null = ::open("/dev/null", O_RDWR);  // the lowest free number
    if (null < 0) return false;
    if (null != stream) {
      if (::dup2(null, stream) < 0) return false;
      ::close(null);
    }
  }
  if (!anew) return true;
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (!error) ::execv(program.c_str(), argv);
  return false;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

StatusOr<ConfigSource> SourceOf(const CommandLine& command) {
  ConfigSource source;
  source.user_mode = command.user_mode;
  source.file = command.config_file;
  source.socket = command.socket;
  if (command.user_mode && command.socket.empty() && !command.check && !command.needs) {
    UserPlaces places;
    places.xdg_runtime_dir = Environment("XDG_RUNTIME_DIR");
    ASSIGN_OR_RETURN(const std::string folder, UserFolder(places, ::geteuid()));
    source.default_socket = absl::StrCat(folder, "/loaderd.sock");
  }
  return source;
}

// The parent leaves; what it made, the child goes on with. No thread exists yet.
Status Detach(Listeners& listeners) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "fork (--detach)");
  if (child > 0) ::_exit(EXIT_SUCCESS);
  return listeners.WritePid();
}

Status Serve(const CommandLine& command) {
  HoldSignals();
  // Before anything of ours takes a number.
  ASSIGN_OR_RETURN(std::vector<PassedDescriptor> passed, TakePassedDescriptors());
  ASSIGN_OR_RETURN(const ConfigSource source, SourceOf(command));
  ASSIGN_OR_RETURN(Config config, LoadConfig(source));
  SetLogLevel(config.log_level);
  config.state_dir = StateDirOfProcess(config.state_dir, command.user_mode);

  Daemon::Setup setup;
  setup.machine = ReadMachine(command.user_mode);
  uint64_t soft_before = 0;
  RETURN_IF_ERROR(RaiseDescriptorLimit(&setup.machine, &soft_before));
  // Refuse before a socket says that somebody is there.
  RETURN_IF_ERROR(ComputeSizes(config, setup.machine).status());
  ASSIGN_OR_RETURN(setup.listeners, Listeners::Open({.paths = config.paths,
                                                     .mode = config.socket_mode,
                                                     .group = config.socket_group,
                                                     .lock_passed = command.user_mode},
                                                    std::move(passed)));
  if (command.detach) RETURN_IF_ERROR(Detach(*setup.listeners));

  LogInfo(absl::StrCat("RLIMIT_NOFILE soft raised from ", soft_before, " to ",
                       setup.machine.nofile_soft, ", hard ", setup.machine.nofile_hard));
  if (!command.user_mode && ::geteuid() == 0) {
    LogWarning(
        "the system daemon runs as root; its unit runs it as a user without rights (User=loaderd)");
  }
  if (!command.user_mode && config.dataset_roots.empty()) {
    LogWarning("no dataset_root in the configuration: every path will be refused");
  }
  setup.config = std::move(config);
  setup.user_mode = command.user_mode;
  setup.idle_exit_s = command.idle_exit_s;
  setup.reload = [source] { return LoadConfig(source); };
  ASSIGN_OR_RETURN(const std::unique_ptr<Daemon> daemon, Daemon::Create(std::move(setup)));
  daemon->Run();
  return absl::OkStatus();
}

Status Check(const CommandLine& command) {
  ASSIGN_OR_RETURN(const ConfigSource source, SourceOf(command));
  RETURN_IF_ERROR(LoadConfig(source).status());
  std::puts("ok");
  return absl::OkStatus();
}

Status TellNeeds(const CommandLine& command) {
  ASSIGN_OR_RETURN(const ConfigSource source, SourceOf(command));
  ASSIGN_OR_RETURN(const Config config, LoadConfig(source));
  const Needs needs = ComputeNeeds(config, ReadMachine(command.user_mode));
  std::printf("{\"descriptors\":%llu,\"arithmetic\":\"%s\",\"threads\":%llu,\"slot_bytes\":%llu}\n",
              static_cast<unsigned long long>(needs.descriptors), needs.arithmetic.c_str(),
              static_cast<unsigned long long>(needs.threads),
              static_cast<unsigned long long>(needs.slot_bytes));
  return absl::OkStatus();
}

Status Act(const CommandLine& command) {
  if (command.check) return Check(command);
  return command.needs ? TellNeeds(command) : Serve(command);
}

}  // namespace

int Main(int argc, char** argv) {
  if (!FillStandardStreams(argv)) return kFailure;
  const ParsedCommandLine parsed = ParseCommandLine(argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  const Status status = Act(parsed.command);
  if (status.ok()) return EXIT_SUCCESS;
  // Several lines where the configuration has several errors, each to be found at its own
  // "file:line".
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return kFailure;
}

}  // namespace loaderd::daemon
