// SPDX-License-Identifier: Apache-2.0
// loaderctl: the command line.
#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "client/ctl/admin_commands.h"
#include "client/ctl/bench_command.h"
#include "client/ctl/cat_command.h"
#include "client/ctl/config_command.h"
#include "client/ctl/descriptors_command.h"
#include "client/ctl/doctor_command.h"
#include "client/ctl/result.h"
#include "loaderd/version.h"

namespace loaderd::ctl {
namespace {

constexpr char kDescription[] =
    "Looks at a loaderd daemon, and reads through it.\n"
    "\n"
    "Which daemon: --socket, else LOADERD_SOCKET, else the system's (/run/loaderd/loaderd.sock), "
    "else yours\n"
    "($XDG_RUNTIME_DIR/loaderd, else /run/user/UID/loaderd, else /tmp/loaderd-UID). Only cat and "
    "bench start a\n"
    "daemon of yours where there is none.";

constexpr char kFooter[] =
    "--json prints one JSON document on standard output: field names as in "
    "proto/loaderd/v1/admin.proto, lists under\n"
    "the command's name ({\"sessions\": [...]}), all fields always there, all integers as JSON "
    "numbers (64-bit ones\n"
    "too), sizes in bytes, times in seconds. fds --watch prints one such line after another.\n"
    "Exit codes: 0 done, 1 error, 2 wrong arguments, 3 no daemon. Errors go to standard error.";

constexpr char kDataHelp[] =
    "an image folder's path, or the name of a dataset that the daemon's configuration defines";
constexpr char kTransformHelp[] =
    "JSON array of the job's transform steps (proto/loaderd/v1/job.proto), e.g. '[{\"resize\": "
    "{\"size\": [256]}}, "
    "{\"center_crop\": {\"size\": [224]}}]'";

class CommandLine {
 public:
  CommandLine() : app_(kDescription, "loaderctl") {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", "loaderctl " LOADERD_VERSION);
    app_.footer(kFooter);
    AddAdminCommands();
    AddDescriptors();
    AddDoctor();
    AddCat();
    AddBench();
    AddConfig();
  }

  int Run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app_.exit(error) == 0 ? kExitOk : kExitUsage;
    }
    return command_();
  }

 private:
  CLI::App* Add(CLI::App& to, const char* name, const char* help, std::function<int()> command) {
    CLI::App* added = to.add_subcommand(name, help);
    added->add_flag("--json", shared_.json, "print one JSON document");
    added->add_option("--socket", shared_.socket, "the daemon's socket");
    added->callback([this, command = std::move(command)] { command_ = command; });
    return added;
  }

  void AddAdminCommands() {
    Add(app_, "status",
        "the daemon: limits and what is used of them, fleet, descriptors, threads, memory, uptime",
        [this] { return StatusCommand(shared_); });
    Add(app_, "sessions",
        "sessions: whose, where they stand, their slots; your own, or all for root and the "
        "daemon's user",
        [this] { return SessionsCommand(shared_); });
    Add(app_, "datasets", "datasets that are open", [this] { return DatasetsCommand(shared_); });
    Add(app_, "drain",
        "take no new sessions, let the running ones end, then stop; for root and the daemon's user",
        [this] { return DrainCommand(shared_); });
  }

  void AddDescriptors() {
    CLI::App* fds = Add(app_, "fds",
                        "open descriptors by kind and target, of the daemon or of a process of "
                        "yours; --watch finds leaks",
                        [this] { return DescriptorsCommand(shared_, descriptors_); });
    auto* pid = fds->add_option("PID", descriptors_.pid,
                                "a process of yours, such as a trainer; without it the daemon");
    pid->check(CLI::Range(int64_t{1}, int64_t{1} << 22))->excludes(fds->get_option("--socket"));
    fds->add_option(
           "--watch", descriptors_.watch_s,
           "take what is open now as a baseline and tell what comes on top of it, every so "
           "many seconds (default 2),\nuntil Ctrl-C or the process's end; --json: a line "
           "each time")
        ->expected(0, 1)
        ->default_str("2")
        ->check(CLI::Range(0.05, 86400.0))
        ->type_name("SECONDS");
  }

  void AddDoctor() {
    CLI::App* doctor = Add(app_, "doctor",
                           "hold the limits of daemon, caller and machine against what is needed; "
                           "how to cure what falls short",
                           [this] { return DoctorCommand(shared_, doctor_config_); });
    doctor->add_option("--config", doctor_config_,
                       "the configuration to judge where no daemon is reached (default: that of a "
                       "user daemon)");
    doctor->footer(
        "Exit codes: 0 nothing falls short, 1 something does, whether or not a daemon "
        "is reached.");
  }

  void AddCat() {
    CLI::App* cat = Add(app_, "cat", "write one batch to .npy files, or to a contact sheet",
                        [this] { return CatCommand(shared_, cat_); });
    cat->add_option("--data", cat_.data, kDataHelp)->required();
    auto* transform = cat->add_option("--transform", cat_.transform, kTransformHelp);
    cat->add_option("--size", cat_.size, "Resize(N) and CenterCrop(N), as uint8")
        ->check(CLI::Range(1, 65535))
        ->capture_default_str()
        ->excludes(transform);
    auto* batch = cat->add_option("--batch", cat_.batch, "samples: the first N of the dataset")
                      ->check(CLI::Range(1, 65536))
                      ->capture_default_str();
    cat->add_option("--index", cat_.indices, "these samples instead, by number: --index 0,17,3")
        ->delimiter(',')
        ->check(CLI::NonNegativeNumber)
        ->excludes(batch);
    cat->add_option("--out", cat_.out,
                    "folder for images.npy, labels.npy, index.npy and pad.npy; made where missing");
    cat->add_option("--png", cat_.png, "file for a contact sheet of the images (uint8 only)");
  }

  void AddBench() {
    CLI::App* bench =
        Add(app_, "bench",
            "read batches as fast as they come; tell images per second and CPU per 1,000 images",
            [this] { return BenchCommand(shared_, bench_); });
    bench->add_option("--data", bench_.data, kDataHelp)->required();
    auto* transform = bench->add_option("--transform", bench_.transform, kTransformHelp);
    bench
        ->add_option("--size", bench_.size,
                     "RandomResizedCrop(N) and RandomHorizontalFlip, as uint8")
        ->check(CLI::Range(1, 65535))
        ->capture_default_str()
        ->excludes(transform);
    bench->add_option("--batch", bench_.batch, "batch size")
        ->check(CLI::Range(1, 65536))
        ->capture_default_str();
    auto* seconds = bench
                        ->add_option("--seconds", bench_.seconds,
                                     "how long to measure, once all slots were filled")
                        ->check(CLI::Range(0.1, 86400.0))
                        ->capture_default_str();
    bench
        ->add_option("--epochs", bench_.epochs,
                     "measure N whole epochs instead, from their first sample on")
        ->check(CLI::Range(1, 1'000'000))
        ->excludes(seconds);
    auto* own = bench->add_flag("--private", bench_.own_daemon,
                                "through a daemon started for this run and stopped after it");
    auto* threads = bench->add_option_function<uint32_t>(
        "--fleet-threads",
        [this](uint32_t count) {
          bench_.fleet_threads = count;
          bench_.own_daemon = true;
        },
        "decode threads of the private daemon; implies --private");
    threads->check(CLI::Range(1, 1024));
    bench->get_option("--socket")->excludes(own)->excludes(threads);
  }

  void AddConfig() {
    CLI::App* config = app_.add_subcommand("config", "the daemon's configuration");
    config->require_subcommand(1);
    CLI::App* check =
        Add(*config, "check",
            "tell every error in a configuration file; the exit code is loaderd --check's",
            [this] { return ConfigCheckCommand(shared_, config_file_); });
    check->add_option("FILE", config_file_, "configuration in protobuf text format")->required();
  }

  CLI::App app_;
  Shared shared_;
  CatOptions cat_;
  BenchOptions bench_;
  DescriptorsOptions descriptors_;
  std::string doctor_config_;
  std::string config_file_;
  std::function<int()> command_;
};

}  // namespace
}  // namespace loaderd::ctl

int main(int argc, char** argv) { return loaderd::ctl::CommandLine().Run(argc, argv); }
