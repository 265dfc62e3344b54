// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/ctl/doctor_fixes.h"

namespace loaderd::ctl {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kPlenty = 524288;
constexpr uint64_t kGiB = 1ull << 30;

Allowance Plenty() {
  Allowance allowance;
  allowance.files = {kPlenty, kPlenty};
  allowance.tasks = {100000, 100000};
  allowance.stack = {8 << 20, ResourceLimit::kUnlimited};
  return allowance;
}

v1::Needs Needs(uint64_t descriptors) {
  v1::Needs needs;
  needs.set_descriptors(descriptors);
  needs.set_arithmetic("reserve 72 + the rest");
  needs.set_threads(60);
  needs.set_slot_bytes(4 * kGiB);
  return needs;
}

// A machine on which nothing falls short, without a daemon.
DoctorFacts Machine(uint64_t descriptors = 3076) {
  DoctorFacts facts;
  facts.daemon = "no daemon at /run/loaderd/loaderd.sock (not there)";
  facts.caller = Plenty();
  facts.needs = Needs(descriptors);
  facts.needs_of = "what a user daemon needs by default";
  facts.nr_open = 1 << 20;
  facts.file_max = 1 << 24;
  facts.files_now = 1000;
  facts.memory_bytes = 16 * kGiB;
  return facts;
}

DoctorFacts WithDaemon(uint64_t soft, uint64_t hard, uint64_t descriptors = 20000) {
  DoctorFacts facts = Machine(descriptors);
  facts.status.emplace();
  facts.status->set_descriptor_soft_limit(soft);
  facts.status->set_descriptor_hard_limit(hard);
  facts.status->set_descriptors_open(30);
  facts.daemon_allowance = Plenty();
  return facts;
}

std::vector<std::string> Short(const DoctorFacts& facts) {
  std::vector<std::string> names;
  for (const Check& check : Judge(facts)) {
    if (check.verdict == Verdict::kShort) names.push_back(check.name);
  }
  return names;
}

Check Named(const DoctorFacts& facts, const std::string& name) {
  for (const Check& check : Judge(facts)) {
    if (check.name == name) return check;
  }
  ADD_FAILURE() << "no check " << name;
  return {};
}

TEST(DoctorTest, EnoughOfEverythingFallsNowhereShort) {
  EXPECT_THAT(Short(Machine()), IsEmpty());
  EXPECT_THAT(Short(WithDaemon(kPlenty, kPlenty)), IsEmpty());
}

TEST(DoctorTest, DaemonsLimitIsHeldAgainstItsConfiguration) {
  EXPECT_THAT(Short(WithDaemon(20000, 20000)), IsEmpty());
  EXPECT_THAT(Short(WithDaemon(19999, 19999)),
              ElementsAre("daemon.nofile.soft", "daemon.nofile.hard"));
  EXPECT_THAT(Short(WithDaemon(1024, kPlenty)), ElementsAre("daemon.nofile.soft"));
  DoctorFacts facts = WithDaemon(1024, 1024);
  facts.status->mutable_needs()->add_lowered("limits.max_sessions lowered from 6000 to 300");
  const Check check = Named(facts, "daemon.nofile.soft");
  EXPECT_EQ(check.has, "1,024");
  EXPECT_EQ(check.needs, "20,000");
  EXPECT_THAT(check.why, HasSubstr("reserve 72 + the rest"));
  EXPECT_THAT(check.why, HasSubstr("limits.max_sessions lowered from 6000 to 300"));
  EXPECT_EQ(check.wanted, kPlenty);
}

TEST(DoctorTest, FourFifthsInUseFallShort) {
  DoctorFacts facts = WithDaemon(30000, 30000);
  facts.status->set_descriptors_open(23999);
  EXPECT_THAT(Short(facts), IsEmpty());
  facts.status->set_descriptors_open(24000);
  EXPECT_THAT(Short(facts), ElementsAre("daemon.nofile.open"));
}

TEST(DoctorTest, CallersHardLimitIsWhatItsDaemonWouldGet) {
  DoctorFacts facts = Machine(3076);
  facts.caller.files = {1024, 3076};
  EXPECT_THAT(Short(facts), IsEmpty());
  facts.caller.files = {1024, 3075};
  EXPECT_THAT(Short(facts), ElementsAre("caller.nofile.hard"));
  // One that runs already does not get it.
  DoctorFacts running = WithDaemon(kPlenty, kPlenty);
  running.caller.files = {1024, 1024};
  EXPECT_THAT(Short(running), IsEmpty());
}

TEST(DoctorTest, LowSoftLimitOfTheCallerIsCuredInPlaceWhereTheHardOneAllows) {
  DoctorFacts facts = Machine();
  facts.caller.files = {256, kPlenty};
  EXPECT_THAT(Short(facts), ElementsAre("caller.nofile.soft"));
  EXPECT_THAT(Named(facts, "caller.nofile.soft").why, HasSubstr("raise_soft_limit()"));
  facts.caller.files = {64, 64};
  EXPECT_THAT(Short(facts), ElementsAre("caller.nofile.soft", "caller.nofile.hard"));
  EXPECT_THAT(Named(facts, "caller.nofile.soft").why, testing::Not(HasSubstr("ulimit -Sn")));
}

TEST(DoctorTest, KernelsMaximaBoundEverybody) {
  DoctorFacts facts = Machine(2000000);
  facts.caller.files = {4000000, 4000000};
  EXPECT_THAT(Short(facts), ElementsAre("kernel.nr_open"));
  EXPECT_GE(Named(facts, "kernel.nr_open").wanted, 2000000u);
  facts = Machine();
  facts.files_now = facts.file_max - 100;
  EXPECT_THAT(Short(facts), ElementsAre("kernel.file_max"));
}

TEST(DoctorTest, ThreadsAreBoundByTheUserAndByTheCgroup) {
  DoctorFacts facts = Machine();
  facts.caller.tasks = {59, 59};
  EXPECT_THAT(Short(facts), ElementsAre("nproc"));
  facts.caller.is_root = true;
  facts.caller.cgroup_tasks = TaskLimit{.most = 100, .now = 41};
  EXPECT_THAT(Short(facts), ElementsAre("cgroup.pids"));
  facts.caller.cgroup_tasks->now = 40;
  EXPECT_THAT(Short(facts), IsEmpty());
  // The threads of a daemon that runs are among those in use.
  DoctorFacts running = WithDaemon(kPlenty, kPlenty);
  running.daemon_allowance->cgroup_tasks = TaskLimit{.most = 60, .now = 60};
  EXPECT_THAT(Short(running), IsEmpty());
}

TEST(DoctorTest, StackAndMemoryAreThoseOfTheProcessThatTheDaemonIs) {
  DoctorFacts facts = WithDaemon(kPlenty, kPlenty);
  facts.caller.stack = {1024, 1024};
  facts.caller.cgroup_memory = kGiB;
  EXPECT_THAT(Short(facts), IsEmpty());
  facts.daemon_allowance->stack = {kThreadStack - 1, kThreadStack};
  facts.daemon_allowance->cgroup_memory = 4 * kGiB - 1;
  EXPECT_THAT(Short(facts), ElementsAre("stack", "memory"));
  // Where its process is hidden, the caller's stand for them.
  facts.daemon_allowance.reset();
  EXPECT_THAT(Short(facts), ElementsAre("stack", "memory"));
  EXPECT_THAT(Named(facts, "stack").what, HasSubstr("the caller"));
}

TEST(DoctorTest, NeedsThatAreNotKnownLeaveTheTrainersOwn) {
  DoctorFacts facts = Machine();
  facts.needs.reset();
  facts.needs_of = "what a daemon needs is not known: no executable";
  facts.caller.files = {1024, 1024};
  EXPECT_THAT(Short(facts), IsEmpty());
  EXPECT_THAT(Named(facts, "caller.nofile.hard").why, HasSubstr("no executable"));
}

TEST(DoctorTest, SharedMemoryIsToldToBeOfNoConcern) {
  DoctorFacts facts = Machine();
  facts.shm_bytes = 2 << 20;
  EXPECT_THAT(Short(facts), IsEmpty());
  EXPECT_THAT(Named(facts, "shm").why, HasSubstr("loaderd does not use it"));
}

std::string TextFor(const std::vector<Fix>& fixes, const std::string& place) {
  for (const Fix& fix : fixes) {
    if (fix.place == place) return fix.how + "\n" + fix.text;
  }
  ADD_FAILURE() << "no fix for " << place;
  return "";
}

TEST(DoctorFixesTest, DescriptorsHaveACureInEveryPlace) {
  const std::vector<Fix> fixes = FixesFor(Resource::kFiles, kPlenty);
  EXPECT_THAT(TextFor(fixes, "systemd unit"), HasSubstr("\n[Service]\nLimitNOFILE=524288\n"));
  EXPECT_THAT(TextFor(fixes, "systemd, all services"),
              HasSubstr("[Manager]\nDefaultLimitNOFILE=1024:524288\n"));
  EXPECT_THAT(TextFor(fixes, "systemd, all services"), HasSubstr("/etc/systemd/system.conf.d/"));
  EXPECT_THAT(TextFor(fixes, "systemd, all user services"), HasSubstr("/etc/systemd/user.conf.d/"));
  EXPECT_THAT(TextFor(fixes, "limits.conf"),
              HasSubstr("* soft nofile 524288\n* hard nofile 524288\nroot soft nofile 524288\n"));
  EXPECT_THAT(TextFor(fixes, "Docker"), HasSubstr("--ulimit nofile=524288:524288"));
  EXPECT_THAT(
      TextFor(fixes, "Compose"),
      HasSubstr("    ulimits:\n      nofile:\n        soft: 524288\n        hard: 524288\n"));
  EXPECT_THAT(TextFor(fixes, "Kubernetes"), HasSubstr("no field"));
  EXPECT_THAT(TextFor(fixes, "Kubernetes"),
              HasSubstr("default_ulimits = [\"nofile=524288:524288\"]"));
  EXPECT_THAT(TextFor(fixes, "Slurm"), HasSubstr("PropagateResourceLimitsExcept=NOFILE\n"));
}

TEST(DoctorFixesTest, StackIsInKibOfLimitsConfAndInBytesElsewhere) {
  const std::vector<Fix> fixes = FixesFor(Resource::kStack, 8 << 20);
  EXPECT_THAT(TextFor(fixes, "limits.conf"), HasSubstr("* soft stack 8192\n"));
  EXPECT_THAT(TextFor(fixes, "systemd unit"), HasSubstr("LimitSTACK=8388608\n"));
}

TEST(DoctorFixesTest, ThreadsAreAlsoBoundByCgroups) {
  const std::vector<Fix> fixes = FixesFor(Resource::kTasks, 4096);
  EXPECT_THAT(TextFor(fixes, "systemd unit, cgroup"), HasSubstr("TasksMax=4096"));
  EXPECT_THAT(TextFor(fixes, "Docker, cgroup"), HasSubstr("--pids-limit 4096"));
  EXPECT_THAT(TextFor(fixes, "Kubernetes, cgroup"), HasSubstr("podPidsLimit: 4096"));
}

TEST(DoctorFixesTest, EveryShortageHasACure) {
  for (const Resource resource : {Resource::kFiles, Resource::kTasks, Resource::kStack,
                                  Resource::kMemory, Resource::kNrOpen, Resource::kFileMax}) {
    EXPECT_FALSE(FixesFor(resource, 4096).empty()) << ResourceName(resource);
    for (const Fix& fix : FixesFor(resource, 4096)) EXPECT_TRUE(fix.text.ends_with('\n'));
  }
  EXPECT_THAT(FixesFor(Resource::kMemory, 3 << 20),
              Contains(testing::Field(&Fix::text, HasSubstr("memory: 3Mi"))));
}

}  // namespace
}  // namespace loaderd::ctl
