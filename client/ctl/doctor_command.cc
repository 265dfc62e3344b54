// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/doctor_command.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ctl/doctor.h"
#include "client/ctl/doctor_fixes.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"

namespace loaderd::ctl {
namespace {

// What is short, each once, with the largest number that a check wants.
std::map<Resource, uint64_t> Shortages(const std::vector<Check>& checks) {
  std::map<Resource, uint64_t> shortages;
  for (const Check& check : checks) {
    if (check.verdict != Verdict::kShort) continue;
    uint64_t& wanted = shortages[check.resource];
    wanted = std::max(wanted, check.wanted);
  }
  return shortages;
}

const char* Word(Verdict verdict) { return verdict == Verdict::kOk ? "ok" : "short"; }

std::string JsonChecks(const std::vector<Check>& checks) {
  std::string items;
  for (const Check& check : checks) {
    JsonObject item;
    item.Add("name", check.name).Add("what", check.what).Add("has", check.has);
    item.Add("needs", check.needs).Add("verdict", Word(check.verdict)).Add("why", check.why);
    items += (items.empty() ? "" : ",") + item.text();
  }
  return "[" + items + "]";
}

std::string JsonFixes(const std::map<Resource, uint64_t>& shortages) {
  std::string items;
  for (const auto& [resource, wanted] : shortages) {
    for (const Fix& fix : FixesFor(resource, wanted)) {
      JsonObject item;
      item.Add("resource", ResourceName(resource)).Add("place", fix.place);
      item.Add("how", fix.how).Add("text", fix.text);
      items += (items.empty() ? "" : ",") + item.text();
    }
  }
  return "[" + items + "]";
}

void PrintFixes(const std::map<Resource, uint64_t>& shortages) {
  for (const auto& [resource, wanted] : shortages) {
    std::printf("\nHow to raise %s\n", ResourceName(resource).c_str());
    for (const Fix& fix : FixesFor(resource, wanted)) {
      std::printf("\n  %s: %s\n", fix.place.c_str(), fix.how.c_str());
      for (const auto& line : absl::StrSplit(fix.text, '\n', absl::SkipEmpty())) {
        std::printf("      %s\n", std::string(line).c_str());
      }
    }
  }
}

void Print(const DoctorFacts& facts, const std::vector<Check>& checks,
           const std::map<Resource, uint64_t>& shortages) {
  if (facts.status) {
    std::printf("%s\n", ForTerminal(facts.daemon).c_str());
  } else {
    std::printf("no daemon is reached, so the caller and the machine are judged: %s\n",
                ForTerminal(facts.daemon).c_str());
  }
  if (facts.status && !facts.daemon_allowance) {
    std::printf(
        "its process cannot be seen from here (another PID namespace, hidepid): limits on "
        "threads, stack and memory are the caller's\n");
  }
  if (!facts.needs) std::printf("%s\n", ForTerminal(facts.needs_of).c_str());
  std::printf("\n");
  Table table({"VERDICT", "WHAT", ">HAS", ">NEEDS"});
  for (const Check& check : checks) {
    table.Add({Word(check.verdict), check.what, check.has, check.needs});
  }
  table.Print(stdout);
  std::printf("\n");
  for (const Check& check : checks) {
    if (check.why.empty()) continue;
    std::printf("%s%s: %s\n", check.verdict == Verdict::kShort ? "SHORT: " : "", check.what.c_str(),
                ForTerminal(check.why).c_str());
  }
  PrintFixes(shortages);
  std::printf("\n%s\n", shortages.empty() ? "Nothing falls short." : "Something falls short.");
}

}  // namespace

int DoctorCommand(const Shared& shared, const std::string& config) {
  const DoctorFacts facts = Gather(shared.socket, config);
  const std::vector<Check> checks = Judge(facts);
  const std::map<Resource, uint64_t> shortages = Shortages(checks);
  if (shared.json) {
    JsonObject whole;
    whole.Add("ok", shortages.empty()).Add("daemon_reached", facts.status.has_value());
    whole.Add("daemon", facts.daemon).Add("needs_of", facts.needs_of);
    whole.AddJson("needs", facts.needs ? JsonOf(*facts.needs) : "null");
    whole.AddJson("checks", JsonChecks(checks)).AddJson("fixes", JsonFixes(shortages));
    std::printf("%s\n", whole.text().c_str());
  } else {
    Print(facts, checks, shortages);
  }
  return shortages.empty() ? kExitOk : kExitError;
}

}  // namespace loaderd::ctl
