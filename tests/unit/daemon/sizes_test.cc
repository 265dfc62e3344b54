// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace loaderd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

MachineFacts Machine(uint32_t cpus, uint64_t nofile = 524288) {
  MachineFacts machine;
  machine.affinity_cpus = cpus;
  machine.memory_bytes = 64ull << 30;
  machine.nofile_soft = machine.nofile_hard = nofile;
  return machine;
}

Sizes Compute(const Config& config, const MachineFacts& machine) {
  const StatusOr<Sizes> sizes = ComputeSizes(config, machine);
  EXPECT_TRUE(sizes.ok()) << sizes.status();
  return sizes.ok() ? *sizes : Sizes();
}

TEST(SizesTest, FleetIsTheAffinityWhereNothingElseBounds) {
  const Sizes sizes = Compute({}, Machine(12));
  EXPECT_EQ(sizes.fleet_threads, 12u);
  EXPECT_EQ(sizes.reader_threads, 24u);
  EXPECT_EQ(sizes.fleet_reason, "affinity 12, no cgroup quota");
  EXPECT_THAT(sizes.lowered, IsEmpty());
}

TEST(SizesTest, QuotaIsRoundedUp) {
  MachineFacts machine = Machine(12);
  for (const auto& [quota, threads] : {std::pair{0.1, 1u}, {1.0, 1u}, {2.5, 3u}, {99.0, 12u}}) {
    machine.quota_cpus = quota;
    EXPECT_EQ(Compute({}, machine).fleet_threads, threads) << quota;
  }
  EXPECT_THAT(Compute({}, machine).fleet_reason, HasSubstr("cgroup quota 99.00 CPUs"));
}

TEST(SizesTest, ConfigurationHasTheWord) {
  MachineFacts machine = Machine(2);
  machine.quota_cpus = 1;
  Config config;
  config.fleet_threads = 5;
  const Sizes sizes = Compute(config, machine);
  EXPECT_EQ(sizes.fleet_threads, 5u);
  EXPECT_EQ(sizes.fleet_reason, "fleet.threads 5");
}

TEST(SizesTest, UserDaemonBesideASystemDaemonTakesHalf) {
  MachineFacts machine = Machine(8);
  machine.beside_system_daemon = true;
  EXPECT_EQ(Compute({}, machine).fleet_threads, 4u);
  EXPECT_THAT(Compute({}, machine).fleet_reason, HasSubstr("half beside the system daemon"));
  machine.affinity_cpus = 1;
  EXPECT_EQ(Compute({}, machine).fleet_threads, 1u);
}

TEST(SizesTest, ReadersAreTwoAThreadWithinFourAndSixtyFour) {
  EXPECT_EQ(Compute({}, Machine(1)).reader_threads, 4u);
  EXPECT_EQ(Compute({}, Machine(200)).reader_threads, 64u);
  EXPECT_EQ(Compute({}, Machine(8)).max_reads_in_flight, 256u);
}

TEST(SizesTest, ReserveIsByTheCoreAndAtMostHalf) {
  EXPECT_EQ(Compute({}, Machine(4, 1024)).descriptor_reserve, 80u);
  EXPECT_EQ(Compute({}, Machine(4, 1024)).descriptors, 944u);
  EXPECT_EQ(Compute({}, Machine(4, 100)).descriptor_reserve, 50u);
}

TEST(SizesTest, FewDescriptorsLowerThreadsAndSessionsAndSaySo) {
  Config config;
  config.fleet_threads = 40;
  config.max_connections = 500;
  const Sizes sizes = Compute(config, Machine(4, 64));
  EXPECT_EQ(sizes.descriptors, 32u);
  EXPECT_EQ(sizes.fleet_threads, 4u);
  EXPECT_EQ(sizes.reader_threads, 8u);
  EXPECT_EQ(sizes.max_connections, 12u);
  EXPECT_EQ(sizes.max_sessions, 8u);
  EXPECT_THAT(
      sizes.lowered,
      ElementsAre(
          testing::AllOf(HasSubstr("decode threads lowered from 40 to 4: 40 need 320 descriptors"),
                         HasSubstr("RLIMIT_NOFILE 64 - reserve 32 leaves 32"),
                         HasSubstr("LimitNOFILE=")),
          HasSubstr("limits.max_connections lowered from 500 to 12"),
          HasSubstr("limits.max_sessions lowered from 1000 to 8")));
  EXPECT_THAT(sizes.fleet_reason, HasSubstr("lowered to 4 by 32 descriptors"));
}

TEST(SizesTest, LimitThatHoldsNoTrainerIsRefusedWithTheArithmetic) {
  for (uint64_t limit = 0; limit < kLeastReserve + kLeastBudget; ++limit) {
    EXPECT_EQ(ComputeSizes({}, Machine(4, limit)).status().code(),
              absl::StatusCode::kResourceExhausted)
        << limit;
  }
  EXPECT_TRUE(ComputeSizes({}, Machine(4, kLeastReserve + kLeastBudget)).ok());
  const Status refused = ComputeSizes({}, Machine(4, 20)).status();
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("RLIMIT_NOFILE 20 is too low: reserve 28 + 1 reader + one trainer's 5 = 34"));
}

TEST(SizesTest, ReserveFromTheConfigurationIsNamedWhereItIsTooLarge) {
  Config config;
  config.descriptor_reserve = 1020;
  EXPECT_THAT(std::string(ComputeSizes(config, Machine(4, 1024)).status().message()),
              HasSubstr("limits.descriptor_reserve"));
}

// Whatever the limit, what all may hold together stays within the budget.
TEST(SizesTest, AFullHouseFitsTheBudgetAtEveryLimit) {
  for (uint64_t limit = kLeastReserve + kLeastBudget; limit < 5000; ++limit) {
    const Sizes sizes = Compute({}, Machine(16, limit));
    EXPECT_LE(sizes.reader_threads + kPerTrainer * sizes.max_sessions, sizes.descriptors) << limit;
    EXPECT_LE(sizes.reader_threads + kPerConnection * sizes.max_connections, sizes.descriptors)
        << limit;
    EXPECT_EQ(sizes.descriptors + sizes.descriptor_reserve, limit);
  }
}

TEST(SizesTest, UnlimitedDescriptorsAreANumberStill) {
  EXPECT_EQ(Compute({}, Machine(4, UINT64_MAX)).descriptor_limit, 1u << 20);
}

TEST(SizesTest, SlotBytesAreAQuarterOfWhatTheCgroupLeaves) {
  MachineFacts machine = Machine(4);
  EXPECT_EQ(Compute({}, machine).slot_bytes, 16ull << 30);
  EXPECT_EQ(Compute({}, machine).prefaulted_bytes, 64u << 20);
  machine.memory_limit = 4ull << 30;
  EXPECT_EQ(Compute({}, machine).slot_bytes, 1ull << 30);
  Config config;
  config.slot_bytes = 1 << 20;
  EXPECT_EQ(Compute(config, machine).slot_bytes, 1u << 20);
  EXPECT_EQ(Compute(config, machine).prefaulted_bytes, 0u);
  config.slot_bytes = 512 << 20;
  EXPECT_EQ(Compute(config, machine).prefaulted_bytes, 32u << 20);
  config.prefaulted_bytes = 5 << 20;
  EXPECT_EQ(Compute(config, machine).prefaulted_bytes, 5u << 20);
  config.prefaulted_bytes = 0;
  EXPECT_EQ(Compute(config, machine).prefaulted_bytes, 0u);
}

TEST(NeedsTest, NeedIsTheLeastLimitAtWhichNothingIsLowered) {
  for (const uint32_t cpus : {1u, 4u, 64u, 300u}) {
    for (const uint32_t sessions : {1u, 10u, 1000u, 6600u}) {
      for (const uint32_t connections : {0u, 20000u}) {
        Config config;
        config.max_sessions = sessions;
        config.max_connections = connections;
        const uint64_t need = ComputeNeeds(config, Machine(cpus)).descriptors;
        EXPECT_THAT(Compute(config, Machine(cpus, need)).lowered, IsEmpty()) << need;
        const StatusOr<Sizes> less = ComputeSizes(config, Machine(cpus, need - 1));
        EXPECT_TRUE(!less.ok() || !less->lowered.empty()) << need;
      }
    }
  }
}

TEST(NeedsTest, ArithmeticAddsUp) {
  const Needs needs = ComputeNeeds({}, Machine(4));
  EXPECT_EQ(needs.descriptors, 80u + 8 + 3 * 1000);
  EXPECT_EQ(needs.arithmetic,
            "reserve 80 + 8 readers with a file each + 1000 sessions x 3 (connection, its watch, "
            "segment) = 3088");
  Config many;
  many.fleet_threads = 2000;
  many.reader_threads = 64;
  many.max_sessions = 10;
  EXPECT_EQ(ComputeNeeds(many, Machine(4)).arithmetic,
            "reserve 80 + 2000 decode threads x 8 = 16080");
}

TEST(NeedsTest, MachinesOwnLimitDoesNotMatter) {
  EXPECT_EQ(ComputeNeeds({}, Machine(4, 10)).descriptors,
            ComputeNeeds({}, Machine(4, 524288)).descriptors);
}

TEST(NeedsTest, MoreThanLoaderdCountsIsSaid) {
  Config config;
  config.max_sessions = 1000000;
  EXPECT_EQ(ComputeNeeds(config, Machine(4)).descriptors, 1u << 20);
  EXPECT_THAT(ComputeNeeds(config, Machine(4)).arithmetic, HasSubstr("more than 1048576"));
}

}  // namespace
}  // namespace loaderd::daemon
