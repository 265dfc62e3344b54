// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/admin_commands.h"

#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/channel.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"

namespace loaderd::ctl {
namespace {

// Connects, calls, prints by `json` or by `print`.
template <typename Call, typename Json, typename Print>
int Ask(const Shared& shared, Call call, Json json, Print print) {
  absl::StatusOr<AdminChannel> channel = AdminChannel::Connect(shared.socket);
  if (!channel.ok()) return Fail(channel.status());
  const auto answer = call(*channel);
  if (!answer.ok()) return Fail(answer.status());
  if (shared.json) {
    std::printf("%s\n", json(*answer).c_str());
  } else {
    print(*answer);
  }
  return kExitOk;
}

std::string JsonOfAny(const google::protobuf::Message& message) { return JsonOf(message); }

// A list's own field is in the singular, as proto fields are; its JSON key is what the command is
// called.
template <typename List>
std::string JsonList(const char* name, const List& list) {
  std::string items;
  for (const auto& item : list) {
    if (!items.empty()) items += ',';
    items += JsonOf(item);
  }
  return JsonObject().AddJson(name, "[" + items + "]").text();
}

bool CountsBytes(const std::string& budget) { return budget.find("bytes") != std::string::npos; }

std::string BudgetAmount(const std::string& budget, uint64_t amount) {
  return CountsBytes(budget) ? FormatBytes(amount) : FormatCount(amount);
}

void PrintStatus(const v1::GetStatusResponse& status) {
  std::printf("loaderd %s, %s daemon, %s: process %d of uid %d, up %s\n",
              ForTerminal(status.version()).c_str(), ForTerminal(status.mode()).c_str(),
              ForTerminal(status.state()).c_str(), static_cast<int>(status.pid()),
              static_cast<int>(status.uid()), FormatSeconds(status.uptime_s()).c_str());
  std::printf("  socket       %s\n", ForTerminal(status.socket()).c_str());
  std::printf("  segments     %s\n", ForTerminal(status.segment_socket()).c_str());
  std::printf("  paths        of mount namespace %s\n",
              ForTerminal(status.mount_namespace()).c_str());
  std::printf("  fleet        %u decode threads, %u reader threads (%s)\n", status.fleet_threads(),
              status.reader_threads(), ForTerminal(status.fleet_reason()).c_str());
  std::printf("  process      %u threads, %s resident, %s of CPU\n", status.threads(),
              FormatBytes(status.resident_bytes()).c_str(), FormatSeconds(status.cpu_s()).c_str());
  std::printf("  descriptors  %s open, soft limit %s, hard limit %s\n",
              FormatCount(status.descriptors_open()).c_str(),
              FormatCount(status.descriptor_soft_limit()).c_str(),
              FormatCount(status.descriptor_hard_limit()).c_str());
  std::printf("  now          %s sessions, %s connections\n",
              FormatCount(status.sessions()).c_str(), FormatCount(status.connections()).c_str());
  std::printf("  since start  %s batches, %s samples, %s bad samples\n",
              FormatCount(status.batches_delivered()).c_str(),
              FormatCount(status.samples_delivered()).c_str(),
              FormatCount(status.bad_samples()).c_str());
  if (status.budget_size() == 0) return;
  std::printf("\n");
  Table table({"LIMIT", ">USED", ">TOTAL", "RAISED BY"});
  for (const v1::BudgetUse& budget : status.budget()) {
    table.Add({ForTerminal(budget.name()), BudgetAmount(budget.name(), budget.used()),
               BudgetAmount(budget.name(), budget.total()), ForTerminal(budget.config_field())});
  }
  table.Print(stdout);
}

void PrintSessions(const v1::ListSessionsResponse& sessions) {
  if (sessions.session_size() == 0) {
    std::printf("no sessions\n");
    return;
  }
  Table table({"SESSION", ">UID", ">PID", "CLIENT", "DATASET", ">EPOCH", ">BATCH", ">SIZE",
               "SLOTS free/filling/ready/lent", ">MEMORY", ">BATCHES", ">COPIED", ">BAD",
               "DELIVERY", ">CPU", ">AGE", "STATE"});
  for (const v1::SessionState& s : sessions.session()) {
    const std::string batch = s.num_batches() == 0
                                  ? absl::StrCat(s.next_batch())
                                  : absl::StrCat(s.next_batch(), "/", s.num_batches());
    table.Add({ForTerminal(s.session()), absl::StrCat(s.uid()), absl::StrCat(s.pid()),
               ForTerminal(s.client()), ForTerminal(s.dataset()), absl::StrCat(s.epoch()), batch,
               absl::StrCat(s.batch_size()),
               absl::StrCat(s.slots(), ": ", s.slots_free(), "/", s.slots_filling(), "/",
                            s.slots_ready(), "/", s.slots_lent()),
               FormatBytes(s.slots() * s.slot_bytes()), FormatCount(s.batches_delivered()),
               FormatCount(s.batches_copied()), FormatCount(s.bad_samples()),
               ForTerminal(s.delivery()), FormatSeconds(s.cpu_s()), FormatSeconds(s.age_s()),
               ForTerminal(s.state())});
  }
  table.Print(stdout);
}

void PrintDatasets(const v1::ListDatasetsResponse& datasets) {
  if (datasets.dataset_size() == 0) {
    std::printf("no datasets are open\n");
    return;
  }
  Table table({"DATASET", "NAME", "KIND", ">SAMPLES", ">CLASSES", ">SESSIONS", ">INDEX",
               ">INDEXED IN", "ORDER"});
  for (const v1::DatasetState& d : datasets.dataset()) {
    table.Add({ForTerminal(d.path()), d.name().empty() ? "-" : ForTerminal(d.name()),
               ForTerminal(d.kind()), FormatCount(d.num_samples()), FormatCount(d.num_classes()),
               absl::StrCat(d.sessions()), FormatBytes(d.index_bytes()),
               absl::StrFormat("%.2f s", d.index_s()),
               ForTerminal(d.order_fingerprint()).substr(0, 12)});
  }
  table.Print(stdout);
}

void PrintDrain(const v1::DrainResponse& drain) {
  if (drain.sessions_left() == 0) {
    std::printf("draining: no sessions are left, the daemon leaves now\n");
  } else {
    std::printf("draining: no new sessions; %u left to end, then the daemon leaves\n",
                drain.sessions_left());
  }
}

}  // namespace

int StatusCommand(const Shared& shared) {
  return Ask(
      shared, [](AdminChannel& channel) { return channel.GetStatus(); }, JsonOfAny, PrintStatus);
}

int SessionsCommand(const Shared& shared) {
  return Ask(
      shared, [](AdminChannel& channel) { return channel.ListSessions(); },
      [](const auto& answer) { return JsonList("sessions", answer.session()); }, PrintSessions);
}

int DatasetsCommand(const Shared& shared) {
  return Ask(
      shared, [](AdminChannel& channel) { return channel.ListDatasets(); },
      [](const auto& answer) { return JsonList("datasets", answer.dataset()); }, PrintDatasets);
}

int DrainCommand(const Shared& shared) {
  return Ask(
      shared, [](AdminChannel& channel) { return channel.Drain(); }, JsonOfAny, PrintDrain);
}

}  // namespace loaderd::ctl
