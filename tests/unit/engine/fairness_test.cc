// SPDX-License-Identifier: Apache-2.0
// The fleet's CPU time, as sessions with work of very different weight get it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/engine/engine.h"
#include "tests/unit/engine/front.h"

namespace loaderd::engine {
namespace {

// A trainer that takes what it gets at once, for as long as the test goes on.
class Glutton : public SessionEvents {
 public:
  void OnDelivery(Delivery delivery) override {
    if (stop_) return;
    if (delivery.epoch_end) {
      EXPECT_TRUE(session->Start(delivery.epoch + 1, 0, delivery.start + 1, true).ok());
      EXPECT_TRUE(session->Want(2).ok());
    } else {
      EXPECT_TRUE(session->Release(std::vector<uint32_t>{delivery.slot}).ok());
      EXPECT_TRUE(session->Want(1).ok());
    }
  }
  void Begin() {
    EXPECT_TRUE(session->Start(0, 0, 1, true).ok());
    EXPECT_TRUE(session->Want(2).ok());
  }
  void Stop() { stop_ = true; }
  double cpu_s() const { return session->facts().cpu_s; }

  std::unique_ptr<Session> session;

 private:
  std::atomic<bool> stop_ = false;
};

class FairnessTest : public EngineFixture {
 protected:
  // One whose samples are of `side` x `side` pixels, all batches with as many pixels, so that each
  // has enough on the way to have always work.
  std::unique_ptr<Glutton> Join(uint32_t uid, int side) {
    auto glutton = std::make_unique<Glutton>();
    plan::Job job = JobOf(static_cast<uint32_t>(8 * 256 * 256 / (side * side)));
    job.recipe.steps = {step::RandomResizedCrop{.size = {side, side}}};
    auto session =
        engine->Open(job, std::make_shared<FakeDataset>(4000), {.uid = uid}, false, glutton.get());
    EXPECT_TRUE(session.ok()) << session.status();
    glutton->session = *std::move(session);
    return glutton;
  }
  // What each gets of the fleet while all have work.
  static std::vector<double> Shares(const std::vector<Glutton*>& all) {
    std::vector<double> before;
    for (const Glutton* one : all) before.push_back(one->cpu_s());
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    std::vector<double> shares;
    for (size_t i = 0; i < all.size(); ++i) shares.push_back(all[i]->cpu_s() - before[i]);
    for (Glutton* one : all) one->Stop();
    return shares;
  }
};

TEST_F(FairnessTest, HeavySamplesGetNoMoreOfTheFleetThanLightOnes) {
  const auto heavy = Join(1000, 256);
  const auto light = Join(1001, 32);
  heavy->Begin();
  light->Begin();
  const std::vector<double> shares = Shares({heavy.get(), light.get()});
  EXPECT_GT(shares[1], 0.0);
  EXPECT_NEAR(shares[0] / (shares[0] + shares[1]), 0.5, 0.1);
}

TEST_F(FairnessTest, ManySessionsOfOneUserGetNoMoreThanTheOneOfAnother) {
  const auto alone = Join(1000, 128);
  std::vector<std::unique_ptr<Glutton>> many;
  for (int i = 0; i < 4; ++i) many.push_back(Join(1001, 128));
  alone->Begin();
  for (const auto& one : many) one->Begin();
  const std::vector<double> shares =
      Shares({alone.get(), many[0].get(), many[1].get(), many[2].get(), many[3].get()});
  const double theirs = shares[1] + shares[2] + shares[3] + shares[4];
  EXPECT_NEAR(shares[0] / (shares[0] + theirs), 0.5, 0.1);
  for (int i = 1; i <= 4; ++i) EXPECT_NEAR(shares[i] / theirs, 0.25, 0.1) << i;
}

// The pool of runs is full of another's heavy ones when it begins.
TEST_F(FairnessTest, ANewSessionHasItsShareWithinASecond) {
  const auto old = Join(1000, 256);
  old->Begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  const auto young = Join(1001, 32);
  young->Begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::vector<double> shares = Shares({old.get(), young.get()});
  EXPECT_NEAR(shares[1] / (shares[0] + shares[1]), 0.5, 0.1);
}

}  // namespace
}  // namespace loaderd::engine
