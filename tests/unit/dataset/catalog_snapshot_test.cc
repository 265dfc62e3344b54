// SPDX-License-Identifier: Apache-2.0
// Datasets as jobs began with them, whatever their folders hold now.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/dataset/catalog.h"
#include "tests/support/dataset_builder.h"
#include "tests/support/status_matchers.h"

namespace loaderd::dataset {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr std::chrono::seconds kOld{60};
using Opened = StatusOr<std::shared_ptr<const Dataset>>;

class CatalogSnapshotTest : public testing::Test {
 protected:
  CatalogSnapshotTest() {
    builder_.File("c/1.jpg").File("c/2.jpg").File("d/1.jpg").Age(kOld);
    Restart();
  }
  // What a daemon that was killed leaves is on the disk alone.
  void Restart(const std::string& state = "state") {
    catalog_.reset();
    catalog_.emplace(Catalog::Options{.state_dir = state.empty() ? "" : elsewhere_.Path(state)});
  }
  Opened Open(const std::string& order = "", HiddenRule hidden = HiddenRule::kTorchvision) {
    Opened opened = catalog_->Open({.image_folder = builder_.root(), .name = {}, .hidden = hidden},
                                   {}, nullptr, order);
    catalog_->Flush();
    return opened;
  }
  std::string Begin() {
    const Opened opened = Open();
    EXPECT_THAT(opened, IsOk());
    return (*opened)->order_fingerprint();
  }
  static std::vector<std::string> Names(const Dataset& dataset) {
    std::vector<std::string> names;
    for (uint64_t i = 0; i < dataset.size(); ++i)
      names.push_back(dataset.Name(i).substr(dataset.path().size() + 1));
    return names;
  }
  void Change() { builder_.Remove("c/2.jpg").File("c/0.jpg").File("e/1.jpg"); }

  DatasetBuilder builder_;
  DatasetBuilder elsewhere_;
  std::optional<Catalog> catalog_;
};

TEST_F(CatalogSnapshotTest, AJobGoesOnWithItsOrderAfterARestart) {
  const std::string order = Begin();
  Restart();
  Change();
  ASSERT_OK_AND_ASSIGN(const auto as_it_was, Open(order));
  EXPECT_THAT(Names(*as_it_was), ElementsAre("c/1.jpg", "c/2.jpg", "d/1.jpg"));
  EXPECT_THAT(as_it_was->class_names(), ElementsAre("c", "d"));
  EXPECT_EQ(as_it_was->order_fingerprint(), order);
  ByteBuffer buffer;
  EXPECT_THAT(as_it_was->Read(0, buffer), IsOk());
  EXPECT_THAT(as_it_was->Read(1, buffer),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("c/2.jpg"), HasSubstr("vanished since indexing"))));
}

TEST_F(CatalogSnapshotTest, OldAndNewJobsAreServedBesideOneAnother) {
  const std::string order = Begin();
  Restart();
  Change();
  ASSERT_OK_AND_ASSIGN(const auto now, Open());
  ASSERT_OK_AND_ASSIGN(const auto as_it_was, Open(order));
  ASSERT_OK_AND_ASSIGN(const auto same, Open(order));
  ASSERT_OK_AND_ASSIGN(const auto now_too, Open());
  EXPECT_THAT(Names(*now), ElementsAre("c/0.jpg", "c/1.jpg", "d/1.jpg", "e/1.jpg"));
  EXPECT_EQ(as_it_was->size(), 3u);
  EXPECT_EQ(as_it_was, same);
  EXPECT_EQ(now->order_fingerprint(), now_too->order_fingerprint());
  EXPECT_THAT(catalog_->List(), SizeIs(2));
  // Both are on the disk.
  const std::string new_order = now->order_fingerprint();
  Restart();
  builder_.File("f/1.jpg");
  EXPECT_THAT(Open(order), IsOk());
  EXPECT_THAT(Open(new_order), IsOk());
}

TEST_F(CatalogSnapshotTest, WithinOneDaemonMemoryIsEnough) {
  Restart("");
  ASSERT_OK_AND_ASSIGN(const auto running, Open());
  Change();
  ASSERT_OK_AND_ASSIGN(const auto now, Open());
  EXPECT_NE(now, running);
  ASSERT_OK_AND_ASSIGN(const auto again, Open(running->order_fingerprint()));
  EXPECT_EQ(again, running);
  ASSERT_OK_AND_ASSIGN(const auto now_again, Open(now->order_fingerprint()));
  EXPECT_EQ(now_again, now);
}

TEST_F(CatalogSnapshotTest, WithoutASnapshotTheFolderMustHaveTheOrderStill) {
  const std::string order = Begin();
  fs::remove_all(elsewhere_.Path("state"));
  Restart();
  builder_.File("c/1.jpg", "other bytes").File("beside");
  ASSERT_OK_AND_ASSIGN(auto same, Open(order));
  EXPECT_EQ(same->size(), 3u);
  same.reset();
  fs::remove_all(elsewhere_.Path("state"));
  Restart();
  Change();
  const Opened refused = Open(order);
  ASSERT_OK_AND_ASSIGN(const auto now, Open());
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(builder_.root()), HasSubstr(order),
                             HasSubstr(now->order_fingerprint()),
                             HasSubstr("no snapshot any more in " + elsewhere_.Path("state")),
                             HasSubstr("put the names back"))));
  Restart("");
  EXPECT_THAT(Open(order), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("no state directory (state_dir)")));
}

TEST_F(CatalogSnapshotTest, ADamagedSnapshotIsAsGoodAsNone) {
  const std::string order = Begin();
  Restart();
  Change();
  for (const auto& entry : fs::directory_iterator(elsewhere_.Path("state/snapshots"))) {
    fs::resize_file(entry.path(), fs::file_size(entry.path()) / 2);
  }
  testing::internal::CaptureStderr();
  EXPECT_THAT(Open(order), StatusIs(absl::StatusCode::kFailedPrecondition));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr(builder_.root()), HasSubstr("cut short or damaged")));
  // And is made again where the folder is what it was.
  builder_.Remove("c/0.jpg").Remove("e").File("c/2.jpg");
  EXPECT_THAT(Open(order), IsOk());
  Restart();
  Change();
  EXPECT_THAT(Open(order), IsOk());
}

TEST_F(CatalogSnapshotTest, TheRuleForHiddenEntriesIsPartOfWhatWasOpened) {
  builder_.File("c/.3.jpg");
  const std::string all = Begin();
  ASSERT_OK_AND_ASSIGN(auto skipped, Open("", HiddenRule::kSkip));
  const std::string some = skipped->order_fingerprint();
  skipped.reset();
  Restart();
  builder_.Remove("d");
  EXPECT_THAT(Open(some), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK_AND_ASSIGN(skipped, Open(some, HiddenRule::kSkip));
  EXPECT_EQ(skipped->size(), 3u);
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open(all));
  EXPECT_EQ(dataset->size(), 4u);
}

TEST_F(CatalogSnapshotTest, ClassNumbersAreGivenAnewToWhatIsOnTheDisk) {
  const std::string order = Begin();
  Restart();
  Change();
  DatasetSpec spec = {.image_folder = builder_.root(), .name = {}};
  spec.class_to_idx = {{"c", 7}, {"d", 3}};
  ASSERT_OK_AND_ASSIGN(const auto dataset, catalog_->Open(spec, {}, nullptr, order));
  EXPECT_EQ(dataset->label(0), 7);
  EXPECT_EQ(dataset->label(2), 3);
}

TEST_F(CatalogSnapshotTest, WhatIsNoFingerprintIsRefused) {
  for (const std::string& order : {std::string("a"), std::string(64, 'g'), std::string(65, 'a'),
                                   std::string(64, 'A'), std::string("../../../etc/passwd")}) {
    EXPECT_THAT(Open(order), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("expected_order_fingerprint: must be the 64")));
  }
}

TEST_F(CatalogSnapshotTest, AFolderThatIsGoneIsAnErrorAllTheSame) {
  const std::string order = Begin();
  Restart();
  builder_.Remove("c").Remove("d");
  fs::remove(builder_.root());
  EXPECT_THAT(Open(order), StatusIs(absl::StatusCode::kNotFound, HasSubstr(builder_.root())));
}

TEST_F(CatalogSnapshotTest, ManyWhoReopenAtOnceShareOne) {
  const std::string order = Begin();
  Restart();
  Change();
  std::vector<std::shared_ptr<const Dataset>> got(8);
  {
    std::vector<std::jthread> threads;
    for (auto& dataset : got) {
      threads.emplace_back([&] {
        Opened opened = Open(order);
        if (opened.ok()) dataset = *std::move(opened);
      });
    }
  }
  ASSERT_NE(got[0], nullptr);
  for (const auto& dataset : got) EXPECT_EQ(dataset, got[0]);
}

TEST_F(CatalogSnapshotTest, AChangedFolderIsNeverServedStaleToANewJob) {
  const std::string order = Begin();
  ASSERT_OK_AND_ASSIGN(const auto old, Open(order));
  builder_.File("c/3.jpg");
  ASSERT_OK_AND_ASSIGN(const auto now, Open());
  EXPECT_EQ(now->size(), 4u);
  Restart();
  ASSERT_OK_AND_ASSIGN(const auto later, Open());
  EXPECT_EQ(later->size(), 4u);
}

}  // namespace
}  // namespace loaderd::dataset
