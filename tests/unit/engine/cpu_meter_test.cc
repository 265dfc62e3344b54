// SPDX-License-Identifier: Apache-2.0
#include "server/engine/cpu_meter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace loaderd::engine {
namespace {

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

double ThreadCpuSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Spins for so much of the thread's own CPU time, however many others want the core.
void Spin(double seconds) {
  for (const double end = ThreadCpuSeconds() + seconds; ThreadCpuSeconds() < end;) {
  }
}

TEST(CpuMeterTest, SumsUpToTheThreadsCpuTime) {
  CpuMeter meter;
  double sum = 0;
  const double before = ThreadCpuSeconds();
  for (int i = 0; i < 200; ++i) {
    meter.Begin();
    Spin(0.002);
    sum += Seconds(meter.End());
  }
  const double cpu = ThreadCpuSeconds() - before;
  EXPECT_NEAR(sum / cpu, 1.0, 0.25);
}

TEST(CpuMeterTest, TimeThatTheThreadWaitsIsNotCounted) {
  CpuMeter meter;
  double sum = 0;
  for (int i = 0; i < 50; ++i) {
    meter.Begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    sum += Seconds(meter.End());
  }
  EXPECT_LT(sum, 0.08);  // of 0.2 s; what came before the first look is taken for work
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  meter.Begin();
  EXPECT_LT(Seconds(meter.End()), 0.005);
}

}  // namespace
}  // namespace loaderd::engine
