// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/daemon.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>  // before Asio, which uses std::exchange without it

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/daemon/deadline.h"
#include "server/daemon/descriptor_watch.h"
#include "server/daemon/lifecycle.h"
#include "server/dataset/catalog.h"
#include "server/engine/engine.h"
#include "server/rpc/server.h"

namespace loaderd::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// After a stop has been asked for, what sessions have on the way may still arrive.
constexpr milliseconds kGrace{1000};
constexpr milliseconds kPoll{50};
constexpr milliseconds kStatusInterval{5000};
constexpr milliseconds kSelfCallLimit{5000};

Budget::Options BudgetOf(std::string name, uint64_t total, uint64_t per_uid, std::string unit,
                         std::string field) {
  return {.name = std::move(name),
          .total = total,
          .per_uid = per_uid,
          .unit = std::move(unit),
          .config_field = std::move(field)};
}

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};

void MaskSignals(int how) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : kSignals) ::sigaddset(&set, signal);
  ::pthread_sigmask(how, &set, nullptr);
}

class WiredDaemon final : public Daemon {
 public:
  WiredDaemon(Setup setup, const Sizes& sizes)
      : setup_(std::move(setup)),
        sizes_(sizes),
        descriptors_(BudgetOf("descriptors", sizes.descriptors, 0, "",
                              "LimitNOFILE= of the unit (RLIMIT_NOFILE)")),
        slot_bytes_(BudgetOf("slot_bytes", sizes.slot_bytes, sizes.slot_bytes_per_uid, "bytes",
                             "limits.slot_bytes")),
        session_count_(BudgetOf("sessions", sizes.max_sessions, sizes.max_sessions_per_uid, "",
                                "limits.max_sessions")),
        signals_(io_),
        status_timer_(io_),
        idle_timer_(io_),
        stop_timer_(io_),
        descriptor_watch_(io_) {
    catalog_.emplace(dataset::Catalog::Options{
        .restrict_to_roots = !setup_.user_mode,
        .roots = setup_.config.dataset_roots,
        .named = setup_.config.datasets,
        .max_sample_bytes = setup_.config.max_sample_bytes,
        .index_threads = static_cast<int>(std::min(sizes.fleet_threads, kMostIndexThreads)),
        .state_dir = setup_.config.state_dir,
        .snapshot_bytes = setup_.config.snapshot_bytes});
    engine_ = engine::Engine::Create({.fleet_threads = static_cast<int>(sizes.fleet_threads),
                                      .reader_threads = static_cast<int>(sizes.reader_threads),
                                      .max_reads_in_flight = sizes.max_reads_in_flight,
                                      .transform = {.max_pixels = setup_.config.max_pixels,
                                                    .max_decode_ms = setup_.config.max_decode_ms},
                                      .max_storage_failures = setup_.config.max_storage_failures,
                                      .sessions = &session_count_,
                                      .slot_bytes = &slot_bytes_,
                                      .prefaulted_bytes = sizes.prefaulted_bytes,
                                      .descriptors = &descriptors_});
  }

  Status Start() {
    rpc::Server::Options options;
    options.io = &io_;
    options.listener = setup_.listeners->TakeSocket();
    options.segment_listener = setup_.listeners->TakeSegmentSocket();
    options.engine = engine_.get();
    options.catalog = &*catalog_;
    options.descriptors = &descriptors_;
    options.max_connections = sizes_.max_connections;
    options.budgets = {&descriptors_, &slot_bytes_, &session_count_};
    options.user_mode = setup_.user_mode;
    const Needs needs = ComputeNeeds(setup_.config, setup_.machine);
    options.facts = {.version = LOADERD_VERSION,
                     .socket = setup_.listeners->paths().socket,
                     .segment_socket = setup_.listeners->paths().segment_socket,
                     .fleet_reason = sizes_.fleet_reason,
                     .mount_namespace = MountNamespace(),
                     .fleet_threads = sizes_.fleet_threads,
                     .reader_threads = sizes_.reader_threads,
                     .descriptor_soft_limit = setup_.machine.nofile_soft,
                     .descriptor_hard_limit = setup_.machine.nofile_hard,
                     .needs = {.descriptors = needs.descriptors,
                               .arithmetic = needs.arithmetic,
                               .threads = needs.threads,
                               .slot_bytes = needs.slot_bytes,
                               .lowered = sizes_.lowered}};
    options.on_drain = [this] { DrainAsked(); };
    options.on_connections = [this](size_t connections) { ConnectionsChanged(connections); };
    ASSIGN_OR_RETURN(server_, rpc::Server::Start(std::move(options)));
    return absl::OkStatus();
  }

  void Run() override {
    ::signal(SIGPIPE, SIG_IGN);
    for (const int signal : kSignals) signals_.add(signal);
    WaitForSignal();
    MaskSignals(SIG_UNBLOCK);
    watchdog_.emplace(
        io_, [this] { return engine_->Responds() && server_->AnswersItself(kSelfCallLimit); });
    TellStatus();
    ArmIdleExit();
    descriptor_watch_.Start();
    notify::Ready();
    io_.run();
    End();
  }

 private:
  void WaitForSignal() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      if (signal == SIGHUP) {
        Reload();
      } else {
        BeginStop(signal == SIGTERM ? "SIGTERM" : "SIGINT");
      }
      WaitForSignal();
    });
  }

  // Only what datasets are named; everything else needs a new process.
  void Reload() {
    notify::Reloading();
    const StatusOr<Config> config = setup_.reload();
    if (config.ok()) {
      catalog_->SetNamed(config->datasets);
      LogInfo(absl::StrCat("dataset definitions read again datasets=", config->datasets.size()));
    } else {
      // One line an event; the message has a line for each error.
      for (const absl::string_view line : absl::StrSplit(config.status().message(), '\n')) {
        LogError(absl::StrCat("SIGHUP: the configuration is not taken: ", line));
      }
    }
    notify::Ready();
  }

  void ConnectionsChanged(size_t connections) {
    connections_ = connections;
    ArmIdleExit();
  }

  void ArmIdleExit() {
    idle_timer_.cancel();
    if (!setup_.user_mode || setup_.idle_exit_s == 0 || connections_ != 0) return;
    idle_timer_.expires_after(seconds(setup_.idle_exit_s));
    idle_timer_.async_wait([this](const boost::system::error_code& error) {
      // A handler that was already queued when the timer was armed anew comes too early.
      if (error || connections_ != 0 || idle_timer_.expiry() > Clock::Real().Now()) return;
      // Who comes from here on finds no socket and starts a daemon of its own, in place of meeting
      // one that leaves.
      setup_.listeners->Remove();
      BeginStop(absl::StrCat("idle for ", setup_.idle_exit_s, " s"));
    });
  }

  void TellStatus() {
    const engine::EngineCounters counters = engine_->counters();
    const std::string text =
        absl::StrCat(draining_ ? "draining" : "serving", ": ", server_->sessions(), " sessions, ",
                     connections_, " connections, ", counters.samples_delivered,
                     " samples delivered, ", sizes_.fleet_threads, " decode threads");
    if (text != status_) notify::StatusText(text);
    status_ = text;
    status_timer_.expires_after(kStatusInterval);
    status_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) TellStatus();
    });
  }

  // loaderctl drain: no new sessions, and the end comes when the last one has gone.
  void DrainAsked() {
    if (draining_ || stopping_) return;
    draining_ = true;
    server_->Drain();
    LogInfo(absl::StrCat("drain asked for sessions=", server_->sessions()));
    AwaitLastSession(std::nullopt);
  }

  void BeginStop(const std::string& reason) {
    if (stopping_) return;
    stopping_ = true;
    const milliseconds limit = seconds(setup_.config.stop_deadline_s);
    const Clock::Time now = Clock::Real().Now();
    stop_deadline_ = now + limit;
    notify::Stopping(limit);
    status_timer_.cancel();
    LogInfo(absl::StrCat("stopping reason=\"", reason, "\" sessions=", server_->sessions(),
                         " deadline_s=", setup_.config.stop_deadline_s));
    deadline_.emplace(limit, [this] {
      LogWarning("stop deadline passed with work still under way; leaving without it");
      setup_.listeners->Remove();
      ::_exit(EXIT_SUCCESS);
    });
    server_->Drain();
    AwaitLastSession(now + std::min(kGrace, limit / 2));
  }

  // Polls, for a session ends on one of gRPC's threads.
  void AwaitLastSession(std::optional<Clock::Time> until) {
    if (server_->sessions() == 0 || (until && Clock::Real().Now() >= *until)) {
      if (stopping_) {
        io_.stop();
      } else {
        BeginStop("drained");
      }
      return;
    }
    stop_timer_.expires_after(kPoll);
    stop_timer_.async_wait([this, until](const boost::system::error_code& error) {
      if (!error) AwaitLastSession(until);
    });
  }

  // Front, engine, catalog, budgets: each is used by those before it.
  void End() {
    watchdog_.reset();
    // A little before the deadline's own thread, so that what could end in time is not cut off.
    const bool ended = server_->Shutdown(stop_deadline_ - milliseconds(100));
    if (!ended) LogWarning("gRPC has not ended within the stop deadline");
    setup_.listeners->Remove();
    if (!ended) ::_exit(EXIT_SUCCESS);
    server_.reset();
    engine_.reset();
    catalog_.reset();
    deadline_.reset();
    LogInfo("stopped");
  }

  Setup setup_;
  const Sizes sizes_;
  Budget descriptors_;
  Budget slot_bytes_;
  Budget session_count_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer status_timer_;
  boost::asio::steady_timer idle_timer_;
  boost::asio::steady_timer stop_timer_;
  std::optional<Deadline> deadline_;
  std::optional<dataset::Catalog> catalog_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<rpc::Server> server_;
  std::optional<Watchdog> watchdog_;
  DescriptorWatch descriptor_watch_;

  size_t connections_ = 0;
  bool draining_ = false;
  bool stopping_ = false;
  Clock::Time stop_deadline_;
  std::string status_;
};

}  // namespace

void HoldSignals() { MaskSignals(SIG_BLOCK); }

StatusOr<std::unique_ptr<Daemon>> Daemon::Create(Setup setup) {
  ASSIGN_OR_RETURN(const Sizes sizes, ComputeSizes(setup.config, setup.machine));
  const Listeners& listeners = *setup.listeners;
  LogInfo(absl::StrCat("loaderd " LOADERD_VERSION " mode=", setup.user_mode ? "user" : "system",
                       " pid=", ::getpid(), " uid=", ::geteuid(), " ", listeners.description()));
  LogInfo(absl::StrCat(
      "limits descriptors_soft=", setup.machine.nofile_soft,
      " descriptors_hard=", setup.machine.nofile_hard,
      " descriptor_reserve=", sizes.descriptor_reserve, " descriptor_budget=", sizes.descriptors,
      " max_sessions=", sizes.max_sessions, " max_connections=", sizes.max_connections,
      " slot_bytes=", sizes.slot_bytes, " prefaulted_bytes=", sizes.prefaulted_bytes,
      " max_reads_in_flight=", sizes.max_reads_in_flight));
  LogInfo(absl::StrCat("fleet threads=", sizes.fleet_threads, " readers=", sizes.reader_threads,
                       " reason=\"", sizes.fleet_reason, "\""));
  for (const std::string& line : sizes.lowered) LogWarning(line);
  const std::string& state = setup.config.state_dir;
  LogInfo(state.empty() ? "no state directory: index snapshots are not kept"
                        : absl::StrCat("state directory ", Printable(state),
                                       " snapshot_bytes=", setup.config.snapshot_bytes));
  auto daemon = std::make_unique<WiredDaemon>(std::move(setup), sizes);
  RETURN_IF_ERROR(daemon->Start());
  return daemon;
}

}  // namespace loaderd::daemon
