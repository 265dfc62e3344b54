// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/dataset_builder.h"
#include "tests/support/status_matchers.h"

namespace loaderd::dataset {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr std::chrono::seconds kOld{60};
using Opened = StatusOr<std::shared_ptr<const Dataset>>;

class CatalogTest : public testing::Test {
 protected:
  static Opened Open(Catalog& catalog, const std::string& path) {
    return catalog.Open({.image_folder = path, .name = {}}, {}, nullptr);
  }
  static Opened OpenNamed(Catalog& catalog, const std::string& name) {
    return catalog.Open({.image_folder = {}, .name = name}, {}, nullptr);
  }
  static std::vector<uint32_t> Users(const Catalog& catalog) {
    std::vector<uint32_t> users;
    for (const Catalog::Entry& entry : catalog.List()) users.push_back(entry.users);
    return users;
  }

  DatasetBuilder builder_;
};

TEST_F(CatalogTest, UsersOfOneFolderShareOneDataset) {
  builder_.File("c/1.jpg").Age(kOld);
  Catalog catalog({});
  ASSERT_OK_AND_ASSIGN(auto first, Open(catalog, builder_.root()));
  ASSERT_OK_AND_ASSIGN(auto second, Open(catalog, builder_.root()));
  EXPECT_EQ(first, second);
  EXPECT_THAT(Users(catalog), ElementsAre(2));
  first.reset();
  EXPECT_THAT(Users(catalog), ElementsAre(1));
  second.reset();
  EXPECT_THAT(Users(catalog), ElementsAre(0));
}

TEST_F(CatalogTest, AllSpellingsOfAPathMeanOneDataset) {
  builder_.File("data/c/1.jpg").Link("link", "data").Age(kOld);
  Catalog catalog({});
  ASSERT_OK_AND_ASSIGN(const auto plain, Open(catalog, builder_.Path("data")));
  for (const char* other : {"data/", "./data/.", "link", "data/c/.."}) {
    ASSERT_OK_AND_ASSIGN(const auto same, Open(catalog, builder_.Path(other)));
    EXPECT_EQ(same, plain) << other;
  }
  EXPECT_EQ(plain->path(), builder_.Path("data"));
}

TEST_F(CatalogTest, ManyWhoOpenAtOnceGetTheSameDataset) {
  for (int i = 0; i < 500; ++i)
    builder_.File("c" + std::to_string(i % 50) + "/" + std::to_string(i) + ".jpg");
  builder_.Age(kOld);
  Catalog catalog({});
  std::vector<std::shared_ptr<const Dataset>> got(8);
  {
    std::vector<std::jthread> threads;
    for (auto& dataset : got) {
      threads.emplace_back([&] {
        auto opened = Open(catalog, builder_.root());
        if (opened.ok()) dataset = *std::move(opened);
      });
    }
  }
  ASSERT_NE(got[0], nullptr);
  for (const auto& dataset : got) EXPECT_EQ(dataset, got[0]);
  EXPECT_THAT(Users(catalog), ElementsAre(8));
}

TEST_F(CatalogTest, AFolderThatHasJustChangedIsIndexedAnewButSharedWhereEqual) {
  builder_.File("c/1.jpg");
  Catalog catalog({});
  ASSERT_OK_AND_ASSIGN(const auto first, Open(catalog, builder_.root()));
  ASSERT_OK_AND_ASSIGN(const auto second, Open(catalog, builder_.root()));
  EXPECT_EQ(first, second);
}

TEST_F(CatalogTest, AChangedFolderIsIndexedAnewWhileOldUsersKeepTheirs) {
  builder_.File("c/1.jpg").Age(kOld);
  Catalog catalog({});
  ASSERT_OK_AND_ASSIGN(auto before, Open(catalog, builder_.root()));
  builder_.File("c/0.jpg", "new");
  ASSERT_OK_AND_ASSIGN(auto after, Open(catalog, builder_.root()));
  ASSERT_OK_AND_ASSIGN(auto later, Open(catalog, builder_.root()));
  EXPECT_EQ(before->size(), 1u);
  EXPECT_EQ(after->size(), 2u);
  EXPECT_EQ(later, after);
  ByteBuffer buffer;
  EXPECT_THAT(before->Read(0, buffer), IsOk());
  EXPECT_EQ(std::string(buffer.bytes().begin(), buffer.bytes().end()), "bytes of c/1.jpg");
  EXPECT_THAT(catalog.List(), SizeIs(2));
  const std::weak_ptr<const Dataset> old = before;
  before.reset();
  EXPECT_TRUE(old.expired());
  EXPECT_THAT(Users(catalog), ElementsAre(2));
}

TEST_F(CatalogTest, AnIdleDatasetIsReusedWhileItsFolderIsUnchanged) {
  builder_.File("c/1.jpg").Age(kOld);
  Catalog catalog({});
  ASSERT_OK_AND_ASSIGN(auto dataset, Open(catalog, builder_.root()));
  const Dataset* const first = dataset.get();
  dataset.reset();
  ASSERT_OK_AND_ASSIGN(dataset, Open(catalog, builder_.root()));
  EXPECT_EQ(dataset.get(), first);
  dataset.reset();
  builder_.File("d/1.jpg");
  ASSERT_OK_AND_ASSIGN(dataset, Open(catalog, builder_.root()));
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"c", "d"}));
}

TEST_F(CatalogTest, TheLongestIdleIsLetGoFirst) {
  for (const char* name : {"a", "b", "c"}) builder_.File(std::string(name) + "/k/1.jpg");
  builder_.Age(kOld);
  Catalog catalog({.idle_kept = 2});
  std::vector<std::shared_ptr<const Dataset>> opened;
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_OK_AND_ASSIGN(auto dataset, Open(catalog, builder_.Path(name)));
    opened.push_back(std::move(dataset));
  }
  for (const size_t i : {1, 0, 2}) opened[i].reset();
  std::vector<std::string> left;
  for (const auto& entry : catalog.List()) left.push_back(entry.dataset->path());
  EXPECT_THAT(left, ElementsAre(builder_.Path("a"), builder_.Path("c")));
}

TEST_F(CatalogTest, NothingIdleIsKeptWhereNoneIsAskedFor) {
  builder_.File("c/1.jpg").Age(kOld);
  Catalog catalog({.idle_kept = 0});
  ASSERT_OK_AND_ASSIGN(auto dataset, Open(catalog, builder_.root()));
  dataset.reset();
  EXPECT_THAT(catalog.List(), SizeIs(0));
}

TEST_F(CatalogTest, ADatasetOutlivesTheCatalog) {
  builder_.File("c/1.jpg");
  auto catalog = std::make_unique<Catalog>(Catalog::Options{});
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open(*catalog, builder_.root()));
  catalog.reset();
  ByteBuffer buffer;
  EXPECT_THAT(dataset->Read(0, buffer), IsOk());
}

TEST_F(CatalogTest, NamesComeFromTheConfiguration) {
  builder_.File("a/k/1.jpg").File("b/k/1.jpg").File("b/k/2.jpg").Age(kOld);
  Catalog catalog({.named = {{"train", builder_.Path("a")}, {"val", builder_.Path("b")}}});
  ASSERT_OK_AND_ASSIGN(const auto train, OpenNamed(catalog, "train"));
  EXPECT_EQ(train->size(), 1u);
  ASSERT_THAT(catalog.List(), SizeIs(1));
  EXPECT_EQ(catalog.List()[0].name, "train");
  EXPECT_THAT(OpenNamed(catalog, "test"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("\"test\""), HasSubstr("it defines train, val"))));
  catalog.SetNamed({{"train", builder_.Path("b")}});
  ASSERT_OK_AND_ASSIGN(const auto renamed, OpenNamed(catalog, "train"));
  EXPECT_EQ(renamed->size(), 2u);
  EXPECT_EQ(train->size(), 1u);
}

TEST_F(CatalogTest, ErrorsNameThePath) {
  builder_.File("file").Folder("empty/c");
  Catalog catalog({});
  EXPECT_THAT(Open(catalog, "data"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "dataset.image_folder.path: must be absolute, is \"data\""));
  EXPECT_THAT(Open(catalog, builder_.Path("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(builder_.Path("none"))));
  EXPECT_THAT(Open(catalog, builder_.Path("file")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(builder_.Path("file"))));
  EXPECT_THAT(Open(catalog, builder_.Path("file/below")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(builder_.Path("file/below"))));
  EXPECT_THAT(Open(catalog, builder_.Path("empty")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Found no valid file for the classes c")));
}

TEST_F(CatalogTest, AFolderThatWasRepairedOpens) {
  builder_.Folder("c");
  Catalog catalog({});
  EXPECT_THAT(Open(catalog, builder_.root()), StatusIs(absl::StatusCode::kInvalidArgument));
  builder_.File("c/1.jpg");
  EXPECT_THAT(Open(catalog, builder_.root()), IsOk());
}

// Indexing takes a while: there are 2^k ways through k folders that each lead to the next by two
// links.
constexpr int kLevels = 13;
void MakeSlow(DatasetBuilder& builder) {
  for (int level = 0; level < kLevels; ++level) {
    const std::string here = "c/" + std::to_string(level);
    const std::string next = "../" + std::to_string(level + 1);
    builder.Folder(here).Link(here + "/a", next).Link(here + "/b", next);
  }
  builder.File("c/" + std::to_string(kLevels) + "/1.jpg");
}
constexpr uint64_t kSlowSamples = (2u << kLevels) - 1;

TEST_F(CatalogTest, ProgressTellsOfSamplesFoundSoFar) {
  MakeSlow(builder_);
  Catalog catalog({});
  std::vector<uint64_t> told;
  ASSERT_OK_AND_ASSIGN(const auto dataset,
                       catalog.Open({.image_folder = builder_.root(), .name = {}}, {},
                                    [&](uint64_t samples) { told.push_back(samples); }));
  EXPECT_EQ(dataset->size(), kSlowSamples);
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_LE(told.back(), kSlowSamples);
}

TEST_F(CatalogTest, StopEndsTheWaitOfOneAndLeavesTheOthers) {
  MakeSlow(builder_);
  Catalog catalog({});
  std::stop_source stop;
  Opened kept = absl::UnknownError("not opened");
  Opened cancelled = absl::UnknownError("not opened");
  {
    const std::jthread stays([&] { kept = Open(catalog, builder_.root()); });
    const std::jthread goes([&] {
      cancelled = catalog.Open({.image_folder = builder_.root(), .name = {}}, stop.get_token(),
                               [&](uint64_t) { stop.request_stop(); });
    });
  }
  EXPECT_THAT(kept, IsOk());
  EXPECT_THAT(cancelled, StatusIs(absl::StatusCode::kCancelled, HasSubstr(builder_.root())));
}

TEST_F(CatalogTest, IndexingEndsWhenNobodyWaitsAndCanBeginAgain) {
  MakeSlow(builder_);
  Catalog catalog({});
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(
      catalog.Open({.image_folder = builder_.root(), .name = {}}, stop.get_token(), nullptr),
      StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(catalog.List(), SizeIs(0));
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open(catalog, builder_.root()));
  EXPECT_EQ(dataset->size(), kSlowSamples);
  EXPECT_THAT(Users(catalog), ElementsAre(1));
}

TEST_F(CatalogTest, OpeningAndClosingFromManyThreadsKeepsTheCounts) {
  builder_.File("a/k/1.jpg").File("b/k/1.jpg").File("c/k/1.jpg").Age(kOld);
  Catalog catalog({.idle_kept = 1});
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 60; ++i) {
          const auto dataset =
              Open(catalog, builder_.Path(std::string(1, static_cast<char>('a' + (i + t) % 3))));
          ASSERT_THAT(dataset, IsOk());
          ASSERT_EQ((*dataset)->size(), 1u);
          if (i % 10 == 0) catalog.List();
        }
      });
    }
  }
  EXPECT_THAT(Users(catalog), ElementsAre(0));
}

}  // namespace
}  // namespace loaderd::dataset
