// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/bench_command.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/ctl/channel.h"
#include "client/ctl/daemon_process.h"
#include "client/ctl/format.h"
#include "client/ctl/interrupt.h"
#include "client/ctl/json.h"
#include "client/ctl/progress.h"
#include "client/ctl/reader.h"

namespace loaderd::ctl {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kTickMs =
    500;  // how long a wait for a batch lasts before the clock is looked at again

double SecondsSince(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

double OwnCpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Result {
  double open_s = 0;         // until the daemon had the dataset indexed and the session open
  double first_batch_s = 0;  // from the start of the epoch
  double seconds = 0;
  uint64_t images = 0;
  uint64_t batches = 0;
  uint64_t copied = 0;  // batches that came in memory of their own
  uint64_t bad = 0;
  double daemon_cpu_s = 0;
  double trainer_cpu_s = 0;
  uint64_t other_sessions = 0;
  uint32_t fleet_threads = 0;
  uint32_t reader_threads = 0;
  uint32_t slots = 0;
  uint64_t num_samples = 0;

  double rate() const { return static_cast<double>(images) / seconds; }
  double per_thousand(double cpu_s) const { return cpu_s * 1000 / static_cast<double>(images); }
};

// One measurement. The daemon's CPU time is read when the measured part begins and ends. By
// seconds, the measured part lies within a running stream, so that as much is in flight at its
// begin as at its end; by epochs it is the whole of them.
class Measurement {
 public:
  Measurement(const BenchOptions& options, Reader& reader, AdminChannel& admin)
      : options_(options),
        reader_(reader),
        admin_(admin),
        progress_(options.epochs == 0 ? options.seconds : 0) {}

  absl::StatusOr<Result> Run() {
    const loaderd_opened& opened = reader_.opened();
    result_.slots = opened.slot_count;
    result_.num_samples = opened.num_samples;
    begin_ = steady_clock::now();
    if (options_.epochs > 0) {
      if (absl::Status status = Begin(); !status.ok()) return status;
    }
    for (uint64_t epoch = 0; !done_; ++epoch) {
      const bool goes_on = options_.epochs == 0 || epoch + 1 < options_.epochs;
      if (absl::Status status = reader_.StartEpoch(epoch, goes_on); !status.ok()) return status;
      if (absl::Status status = Epoch(); !status.ok()) return status;
      if (!goes_on) done_ = true;
    }
    progress_.Clear();
    if (result_.images == 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("bench: ", options_.data, ": no images came within ",
                       FormatSeconds(SecondsSince(begin_)), "; measure for longer"));
    }
    return Finish();
  }

 private:
  bool TimeIsUp() const {
    return options_.epochs == 0 &&
           SecondsSince(measuring_ ? begin_measured_ : begin_) >= options_.seconds;
  }

  absl::Status Begin() {
    absl::StatusOr<v1::GetStatusResponse> status = admin_.GetStatus();
    if (!status.ok()) return status.status();
    daemon_cpu_ = status->cpu_s();
    trainer_cpu_ = OwnCpuSeconds();
    begin_measured_ = steady_clock::now();
    measuring_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<Result> Finish() {
    result_.trainer_cpu_s = OwnCpuSeconds() - trainer_cpu_;
    result_.seconds = SecondsSince(begin_measured_);
    absl::StatusOr<v1::GetStatusResponse> status = admin_.GetStatus();
    if (!status.ok()) return status.status();
    result_.daemon_cpu_s = status->cpu_s() - daemon_cpu_;
    result_.other_sessions = status->sessions() > 0 ? status->sessions() - 1 : 0;
    result_.fleet_threads = status->fleet_threads();
    result_.reader_threads = status->reader_threads();
    return result_;
  }

  absl::Status Epoch() {
    while (!done_) {
      absl::StatusOr<const loaderd_batch*> batch = reader_.Next(kTickMs);
      if (absl::IsDeadlineExceeded(batch.status())) {
        done_ = TimeIsUp();
        continue;
      }
      if (!batch.ok()) return batch.status();
      if (*batch == nullptr) return absl::OkStatus();
      absl::Status status = Take(**batch);
      loaderd_release(*batch);
      if (!status.ok()) return status;
      done_ = TimeIsUp();
    }
    return absl::OkStatus();
  }

  absl::Status Take(const loaderd_batch& batch) {
    if (seen_++ == 0) result_.first_batch_s = SecondsSince(begin_);
    if (!measuring_) return seen_ >= result_.slots ? Begin() : absl::OkStatus();
    result_.images += batch.count;
    result_.batches += 1;
    result_.copied += batch.copied != 0 ? 1 : 0;
    result_.bad += batch.bad_count;
    const double elapsed = SecondsSince(begin_measured_);
    const double all =
        static_cast<double>(options_.epochs) * static_cast<double>(reader_.opened().epoch_samples);
    const double part = options_.epochs == 0 ? elapsed / options_.seconds
                                             : static_cast<double>(result_.images) / all;
    progress_.Show(
        part, absl::StrCat(
                  FormatCount(static_cast<uint64_t>(static_cast<double>(result_.images) / elapsed)),
                  " img/s, ", FormatCount(result_.images), " images"));
    return absl::OkStatus();
  }

  const BenchOptions& options_;
  Reader& reader_;
  AdminChannel& admin_;
  Progress progress_;
  Result result_;
  steady_clock::time_point begin_;
  steady_clock::time_point begin_measured_;
  double daemon_cpu_ = 0;
  double trainer_cpu_ = 0;
  uint64_t seen_ = 0;
  bool measuring_ = false;
  bool done_ = false;
};

absl::StatusOr<v1::JobSpec> MakeJob(const BenchOptions& options) {
  v1::JobSpec job;
  *job.mutable_dataset() = DatasetOf(options.data);
  if (options.transform.empty()) {
    job.add_transform()->mutable_random_resized_crop()->add_size(options.size);
    job.add_transform()->mutable_random_horizontal_flip();
  } else if (absl::Status status = SetTransform(options.transform, job); !status.ok()) {
    return status;
  }
  job.mutable_order()->set_kind(v1::ORDER_KIND_TORCH_SHUFFLE);
  job.set_batch_size(options.batch);
  job.set_on_bad_sample(v1::BAD_SAMPLE_POLICY_SKIP);
  return job;
}

absl::StatusOr<Result> Measure(const std::string& socket, const BenchOptions& options) {
  absl::StatusOr<v1::JobSpec> job = MakeJob(options);
  if (!job.ok()) return job.status();
  const auto begin = steady_clock::now();
  absl::StatusOr<Reader> reader = Reader::Open(*job, socket);
  if (!reader.ok()) return reader.status();
  const double open_s = SecondsSince(begin);
  absl::StatusOr<AdminChannel> admin = AdminChannel::Connect(reader->opened().socket);
  if (!admin.ok()) return admin.status();
  absl::StatusOr<Result> result = Measurement(options, *reader, *admin).Run();
  if (result.ok()) result->open_s = open_s;
  return result;
}

std::string ToJson(const BenchOptions& options, const Result& r) {
  return JsonObject()
      .Add("data", options.data)
      .Add("num_samples", r.num_samples)
      .Add("batch_size", options.batch)
      .Add("slots", r.slots)
      .Add("fleet_threads", r.fleet_threads)
      .Add("reader_threads", r.reader_threads)
      .Add("private_daemon", options.own_daemon)
      .Add("seconds", r.seconds)
      .Add("images", r.images)
      .Add("batches", r.batches)
      .Add("batches_copied", r.copied)
      .Add("bad_samples", r.bad)
      .Add("images_per_s", r.rate())
      .Add("open_s", r.open_s)
      .Add("first_batch_s", r.first_batch_s)
      .Add("daemon_cpu_s", r.daemon_cpu_s)
      .Add("daemon_cpu_s_per_1000_images", r.per_thousand(r.daemon_cpu_s))
      .Add("trainer_cpu_s", r.trainer_cpu_s)
      .Add("trainer_cpu_s_per_1000_images", r.per_thousand(r.trainer_cpu_s))
      .Add("other_sessions", r.other_sessions)
      .text();
}

void Print(const BenchOptions& options, const Result& r) {
  std::printf("%.1f img/s: %s images in %s batches of %s, %s\n", r.rate(),
              FormatCount(r.images).c_str(), FormatCount(r.batches).c_str(),
              FormatCount(static_cast<uint64_t>(options.batch)).c_str(),
              FormatSeconds(r.seconds).c_str());
  std::printf("  CPU per 1,000 images  %.3f s of the daemon, %.3f s of this process\n",
              r.per_thousand(r.daemon_cpu_s), r.per_thousand(r.trainer_cpu_s));
  std::printf(
      "  first batch           %.3f s after the epoch's start; the session was open in %.3f s\n",
      r.first_batch_s, r.open_s);
  std::printf("  daemon                %u decode threads, %u reader threads, %u slots%s\n",
              r.fleet_threads, r.reader_threads, r.slots,
              options.own_daemon ? ", private to this run" : "");
  std::printf("  dataset               %s, %s samples, %s bad ones met\n",
              ForTerminal(options.data).c_str(), FormatCount(r.num_samples).c_str(),
              FormatCount(r.bad).c_str());
  if (r.other_sessions > 0) {
    std::printf("  note: %s other sessions shared the daemon; its CPU time is that of all\n",
                FormatCount(r.other_sessions).c_str());
  }
}

}  // namespace

int BenchCommand(const Shared& shared, const BenchOptions& options) {
  CatchInterrupts();
  std::optional<PrivateDaemon> own;
  std::string socket = shared.socket;
  if (options.own_daemon) {
    absl::StatusOr<PrivateDaemon> daemon = PrivateDaemon::Start(options.fleet_threads);
    if (!daemon.ok()) return Fail(daemon.status());
    own.emplace(*std::move(daemon));
    socket = own->socket();
  }
  const absl::StatusOr<Result> result = Measure(socket, options);
  if (!result.ok()) return Fail(result.status());
  if (shared.json) {
    std::printf("%s\n", ToJson(options, *result).c_str());
  } else {
    Print(options, *result);
  }
  return kExitOk;
}

}  // namespace loaderd::ctl
