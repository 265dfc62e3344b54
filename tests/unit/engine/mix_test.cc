// SPDX-License-Identifier: Apache-2.0
// MixUp and CutMix through the engine: what is mixed with what, and where it happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "server/engine/engine.h"
#include "server/engine/rooms.h"
#include "server/transform/mix_params.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/front.h"

namespace loaderd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kClasses = 1200;

struct MixedRow {
  std::vector<float> pixels;
  std::map<int64_t, float> labels;  // those that are not 0
  int64_t index = 0;
  bool pad = false;
};

std::vector<MixedRow> MixedRowsOf(const Session& session, const Delivery& delivery) {
  const BatchLayout& layout = session.layout();
  const std::span<const uint8_t> slot = session.SlotBytes(delivery.slot);
  std::vector<MixedRow> rows(delivery.count);
  for (uint32_t i = 0; i < delivery.count; ++i) {
    const auto at = [&](size_t field) {
      return slot.data() + layout.fields[field].offset + i * layout.fields[field].RowBytes();
    };
    rows[i].pixels.resize(layout.fields[0].RowBytes() / sizeof(float));
    std::memcpy(rows[i].pixels.data(), at(0), layout.fields[0].RowBytes());
    std::vector<float> labels(layout.fields[1].RowBytes() / sizeof(float));
    std::memcpy(labels.data(), at(1), layout.fields[1].RowBytes());
    for (size_t k = 0; k < labels.size(); ++k) {
      if (labels[k] != 0) rows[i].labels[static_cast<int64_t>(k)] = labels[k];
    }
    std::memcpy(&rows[i].index, at(2), sizeof(int64_t));
    rows[i].pad = *at(3) != 0;
  }
  return rows;
}

class MixTest : public EngineFixture {
 protected:
  static plan::Job MixJob(uint32_t batch_size,
                          BatchStep step = step::MixUp{.num_classes = kClasses}) {
    plan::Job job = JobOf(batch_size);
    job.recipe.steps.push_back(step::ToTensor{});
    job.order.seed = 5;
    job.batch_transform = std::move(step);
    return job;
  }
  std::unique_ptr<Session> Begin(const plan::Job& job, bool inline_delivery = false) {
    auto session = Open(job, dataset, front, inline_delivery);
    EXPECT_TRUE(session->Start(0, 0, 1, false).ok());
    EXPECT_TRUE(session->Want(100).ok());
    return session;
  }
  // That the batch is MixUp's of these samples, in this order.
  static void ExpectMixed(const Session& session, const Delivery& delivery,
                          const std::vector<int64_t>& indices, uint32_t rank = 0) {
    const transform::BatchKey key{
        .seed = 5, .epoch = delivery.epoch, .step = delivery.step, .rank = rank};
    const double lam = transform::BetaOf(key.At(0), 1);
    const auto own = static_cast<float>(lam);
    const auto other = static_cast<float>(1 - lam);
    const auto grey = [](int64_t index) {
      return static_cast<float>(FakeDataset::Grey(static_cast<uint64_t>(index))) / 255.0F;
    };
    const std::vector<MixedRow> rows = MixedRowsOf(session, delivery);
    ASSERT_EQ(rows.size(), indices.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t before = indices[i == 0 ? indices.size() - 1 : i - 1];
      EXPECT_EQ(rows[i].index, indices[i]);
      const float pixel = grey(before) * other + grey(indices[i]) * own;
      EXPECT_THAT(rows[i].pixels, testing::Each(pixel)) << "step " << delivery.step << " row " << i;
      std::map<int64_t, float> labels;
      labels[FakeDataset::Label(static_cast<uint64_t>(before))] += other;
      labels[FakeDataset::Label(static_cast<uint64_t>(indices[i]))] += own;
      EXPECT_EQ(rows[i].labels, labels) << "step " << delivery.step << " row " << i;
    }
  }

  std::shared_ptr<FakeDataset> dataset = std::make_shared<FakeDataset>(14);
  Front front;
};

TEST_F(MixTest, EachSampleIsMixedWithTheOneBeforeItAndTheLastBatchWithItself) {
  auto session = Begin(MixJob(4));
  const FieldLayout& labels = session->layout().fields[1];
  EXPECT_EQ(labels.name, "labels");
  EXPECT_EQ(labels.dtype, DType::kFloat32);
  EXPECT_THAT(labels.shape, ElementsAre(4, kClasses));
  for (int64_t first = 0; first < 12; first += 4) {
    const Delivery delivery = front.Next();
    ExpectMixed(*session, delivery, {first, first + 1, first + 2, first + 3});
    Release(*session, delivery);
  }
  ExpectMixed(*session, front.Next(), {12, 13});
  EXPECT_TRUE(front.Next().epoch_end);
}

TEST_F(MixTest, ABatchOfOneIsMixedWithItself) {
  plan::Job job = MixJob(13);
  auto session = Begin(job);
  front.Next();
  ExpectMixed(*session, front.Next(), {13});
}

TEST_F(MixTest, DropLastLeavesTheShortBatchOut) {
  plan::Job job = MixJob(4);
  job.drop_last = true;
  auto session = Begin(job);
  for (int step = 0; step < 3; ++step) EXPECT_EQ(front.Next().count, 4u);
  EXPECT_TRUE(front.Next().epoch_end);
}

TEST_F(MixTest, SkippedSamplesAreMixedIntoNone) {
  for (const uint64_t bad : {0, 2, 7, 8, 9, 10, 11}) dataset->Corrupt(bad);
  plan::Job job = MixJob(4);
  job.on_bad_sample = BadSamplePolicy::kSkip;
  auto session = Begin(job);
  ExpectMixed(*session, front.Next(), {1, 3});
  ExpectMixed(*session, front.Next(), {4, 5, 6});
  const Delivery empty = front.Next();
  EXPECT_EQ(empty.count, 0u);
  EXPECT_EQ(empty.bad.size(), 4u);
  ExpectMixed(*session, front.Next(), {12, 13});
}

TEST_F(MixTest, StandInsAreMixedLikeAllOthers) {
  dataset->Corrupt(5);
  plan::Job job = MixJob(4);
  job.on_bad_sample = BadSamplePolicy::kSubstitute;
  auto session = Begin(job);
  front.Next();
  const Delivery delivery = front.Next();
  ASSERT_EQ(delivery.bad.size(), 1u);
  ExpectMixed(*session, delivery, {4, delivery.bad[0].substitute, 6, 7});
}

TEST_F(MixTest, AFailedBatchGivesItsRoomBack) {
  for (const uint64_t bad : {0, 5, 9}) dataset->Corrupt(bad);
  auto session = Begin(MixJob(4));
  for (int step = 0; step < 3; ++step) EXPECT_EQ(front.Next().handling, Handling::kNone);
  ExpectMixed(*session, front.Next(), {12, 13});
}

TEST_F(MixTest, PaddedRepeatsAreMixedAndStayFlagged) {
  plan::Job job = MixJob(4);
  job.order.world_size = 4;
  job.order.rank = 3;
  auto session = Begin(job);
  const Delivery delivery = front.Next();
  ExpectMixed(*session, delivery, {3, 7, 11, 1}, 3);
  std::vector<bool> pads;
  for (const MixedRow& row : MixedRowsOf(*session, delivery)) pads.push_back(row.pad);
  EXPECT_THAT(pads, ElementsAre(false, false, false, true));
}

TEST_F(MixTest, InlineDeliveryHasTheSameBytes) {
  for (const BatchStep& step : {BatchStep(step::MixUp{.num_classes = kClasses}),
                                BatchStep(step::CutMix{.num_classes = kClasses})}) {
    std::vector<std::vector<uint8_t>> slots;
    for (const bool inline_delivery : {false, true}) {
      Front own;
      auto session = Open(MixJob(4, step), dataset, own, inline_delivery);
      ASSERT_TRUE(session->Start(0, 0, 1, false).ok());
      ASSERT_TRUE(session->Want(1).ok());
      const auto bytes = session->SlotBytes(own.Next().slot);
      slots.emplace_back(bytes.begin(), bytes.end());
    }
    EXPECT_EQ(slots[0], slots[1]);
  }
}

TEST_F(MixTest, WhatAClientWritesIntoItsSlotsIsNeverMixedIn) {
  dataset->Block(3);
  auto session = Begin(MixJob(4));
  ASSERT_TRUE(dataset->WaitForBlocked(1));
  const size_t size = session->layout().slot_bytes * session->slot_count();
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, session->segment_fd(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::memset(mapped, 0x5A, size);
  munmap(mapped, size);
  dataset->Unblock();
  ExpectMixed(*session, front.Next(), {0, 1, 2, 3});
}

TEST_F(MixTest, RestartsLoseNoRoom) {
  auto session = Begin(MixJob(1));
  for (uint64_t start = 2; start < 60; ++start) {
    ASSERT_TRUE(session->Start(start % 3, start % 14, start, start % 2 == 0).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(start * 53 % 700));
  }
  // What was delivered before the first of those starts holds its slot.
  while (const auto early = front.NextWithin(std::chrono::milliseconds(30))) {
    if (!early->epoch_end) Release(*session, *early);
  }
  ASSERT_TRUE(session->Start(7, 0, 100, false).ok());
  ASSERT_TRUE(session->Want(15).ok());
  for (int64_t index = 0; index < 14; ++index) {
    const Delivery delivery = front.Next();
    ExpectMixed(*session, delivery, {index});
    Release(*session, delivery);
  }
  EXPECT_TRUE(front.Next().epoch_end);
}

TEST_F(MixTest, RoomsAreChargedWhileTheSessionIsOpen) {
  Restart({.fleet_threads = 2, .reader_threads = 4, .max_reads_in_flight = 8});
  auto session = Begin(MixJob(4));
  front.Next();
  const auto plain = [&] {
    plan::Job job = MixJob(4);
    job.batch_transform.reset();
    Front own;
    return Open(job, dataset, own)->layout().slot_bytes;
  }();
  const uint64_t in_all = 5 * session->layout().slot_bytes + 3 * plain;
  EXPECT_TRUE(Eventually([&] { return slot_bytes.used() == in_all; }));
  const std::unique_ptr<SegmentLease> lease = session->Close();
  EXPECT_TRUE(Eventually([&] { return slot_bytes.used() == 5 * session->layout().slot_bytes; }));
}

TEST_F(MixTest, ScarceMemoryGivesFewerSlotsAndRoomsAndOneOfEachIsEnough) {
  uint64_t slot = 0;
  uint64_t room = 0;
  {
    Front own;
    plan::Job job = MixJob(2);
    slot = Open(job, dataset, own)->layout().slot_bytes;
    job.batch_transform.reset();
    room = Open(job, dataset, own)->layout().slot_bytes;
  }
  for (const uint64_t total : {slot + room, slot + room + 1, 2 * slot + 2 * room}) {
    Budget scarce{{.name = "slot bytes", .total = total, .unit = "bytes", .config_field = "x"}};
    const auto small =
        Engine::Create({.fleet_threads = 2, .reader_threads = 4, .slot_bytes = &scarce});
    Front own;
    auto session = small->Open(MixJob(2), dataset, {}, false, &own);
    ASSERT_THAT(session, IsOk()) << total;
    ASSERT_TRUE((*session)->Start(0, 0, 1, false).ok());
    ASSERT_TRUE((*session)->Want(8).ok());
    for (int64_t first = 0; first < 14; first += 2) {
      const Delivery delivery = own.Next();
      ExpectMixed(**session, delivery, {first, first + 1});
      Release(**session, delivery);
    }
    session->reset();
  }
  Budget none{{.name = "slot bytes", .total = slot, .unit = "bytes", .config_field = "x"}};
  const auto engine = Engine::Create({.slot_bytes = &none});
  EXPECT_THAT(engine->Open(MixJob(2), dataset, {}, false, &front),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(MixTest, ALabelOutsideOfTheClassesIsRefusedAtOpenWithItsSample) {
  const auto opened =
      engine->Open(MixJob(4, step::CutMix{.num_classes = 1015}), dataset, {}, false, &front);
  EXPECT_THAT(opened, StatusIs(absl::StatusCode::kInvalidArgument,
                               "batch_transform.cut_mix.num_classes: labels must be 0 to 1014, "
                               "and that of /fake/3.jpg is 1021"));
}

TEST_F(MixTest, AStepThatCannotMixTheTensorsIsRefusedAtOpen) {
  plan::Job job = MixJob(4);
  job.recipe.steps.pop_back();
  EXPECT_THAT(engine->Open(job, dataset, {}, false, &front),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("batch_transform.mix_up: needs a float tensor")));
  job.recipe.steps = {step::ToTensor{}};
  EXPECT_THAT(engine->Open(job, dataset, {}, false, &front),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the size of a sample")));
}

TEST(RoomsTest, AsManyAsReadsSpreadOverAndOneMoreAndNoMoreThanSlots) {
  EXPECT_EQ(RoomsWanted(16, 64, 5), 2u);
  EXPECT_EQ(RoomsWanted(16, 8, 5), 3u);
  EXPECT_EQ(RoomsWanted(16, 1, 5), 5u);
  EXPECT_EQ(RoomsWanted(16, 1, 1), 1u);
}

}  // namespace
}  // namespace loaderd::engine
