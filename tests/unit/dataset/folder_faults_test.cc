// SPDX-License-Identifier: Apache-2.0
// Folders as people have them: leftovers of editors and systems, odd extensions, links to nowhere,
// names of any bytes, changes while they are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/dataset/catalog.h"
#include "tests/support/dataset_builder.h"
#include "tests/support/status_matchers.h"

namespace loaderd::dataset {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
using Opened = StatusOr<std::shared_ptr<const Dataset>>;

class FolderFaultsTest : public testing::Test {
 protected:
  Opened Open(HiddenRule hidden = HiddenRule::kTorchvision,
              std::vector<std::pair<std::string, int64_t>> class_to_idx = {}) {
    return catalog_.Open({.image_folder = builder_.root(),
                          .name = {},
                          .hidden = hidden,
                          .class_to_idx = std::move(class_to_idx)},
                         {}, nullptr);
  }
  static std::map<std::string, uint64_t> Counts(const Dataset& dataset) {
    std::map<std::string, uint64_t> counts;
    for (const EntryNote& note : dataset.notes())
      counts[note.kind + (note.taken ? ", taken" : "")] = note.count;
    return counts;
  }
  static std::vector<int64_t> Labels(const Dataset& dataset) {
    std::vector<int64_t> labels;
    for (uint64_t i = 0; i < dataset.size(); ++i) labels.push_back(dataset.label(i));
    return labels;
  }

  DatasetBuilder builder_;
  Catalog catalog_{{}};
};

class LeftoversTest : public FolderFaultsTest {
 protected:
  void SetUp() override {
    for (const char* name :
         {"c0/0.jpg", "c0/2.jpg", "c1/1.jpg", "c0/.DS_Store", "c1/.DS_Store", "c0/._0.jpg",
          "c1/._0.jpg", "c0/Thumbs.db", ".DS_Store", "README.txt", ".ipynb_checkpoints/0.jpg",
          "c0/.ipynb_checkpoints/2.jpg", "__MACOSX/c0/._0.jpg", "c1/holiday.jpg/inner.txt",
          "c0/nested/deep.jpg", "c0/upload.jpg.part"}) {
      builder_.File(name);
    }
    builder_.Age(std::chrono::seconds(60));
  }
};

TEST_F(LeftoversTest, SkippingHiddenEntriesLeavesThePicturesAndTellsTheRest) {
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open(HiddenRule::kSkip));
  EXPECT_THAT(dataset->class_names(), ElementsAre("c0", "c1"));
  EXPECT_EQ(dataset->size(), 4u);
  EXPECT_EQ(dataset->label(2), 0) << dataset->Name(2);
  EXPECT_THAT(
      Counts(*dataset),
      UnorderedElementsAre(Pair("hidden entries", 8), Pair("files beside the class folders", 1),
                           Pair("files without an image's extension", 3)));
  EXPECT_THAT(dataset->notes()[2].first, ElementsAre(".DS_Store", ".ipynb_checkpoints", "__MACOSX",
                                                     "c0/.DS_Store", "c0/._0.jpg"));
}

TEST_F(LeftoversTest, TorchvisionsRuleTakesHiddenEntriesAndTellsSo) {
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open());
  EXPECT_THAT(dataset->class_names(), ElementsAre(".ipynb_checkpoints", "__MACOSX", "c0", "c1"));
  EXPECT_EQ(dataset->size(), 9u);
  EXPECT_EQ(Counts(*dataset)["hidden entries, taken"], 6u);
}

TEST_F(LeftoversTest, BothRulesAreServedAtOnceEachFromItsOwnIndex) {
  ASSERT_OK_AND_ASSIGN(const auto all, Open());
  ASSERT_OK_AND_ASSIGN(const auto skipped, Open(HiddenRule::kSkip));
  EXPECT_EQ(all->size(), 9u);
  EXPECT_EQ(skipped->size(), 4u);
  ASSERT_OK_AND_ASSIGN(const auto again, Open(HiddenRule::kSkip));
  EXPECT_EQ(again, skipped);
  EXPECT_EQ(catalog_.List().size(), 2u);
}

TEST_F(FolderFaultsTest, ExtensionsOfAnyCaseAreFoundAndTheOthersAreNamed) {
  for (const char* name : {"0.jpg", "1.JPG", "2.jpeg", "3.JPEG", "4.Jpg", "5.jpe", "6.JFIF",
                           "7.png", "8.PNG", "9", "10.jpg_large", "11.tar.jpg"}) {
    builder_.File(std::string("c0/") + name);
  }
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open());
  EXPECT_EQ(dataset->size(), 8u);
  ASSERT_EQ(dataset->notes().size(), 1u);
  EXPECT_EQ(dataset->notes()[0].count, 4u);
  EXPECT_THAT(dataset->notes()[0].first,
              ElementsAre("c0/10.jpg_large", "c0/5.jpe", "c0/6.JFIF", "c0/9"));
}

TEST_F(FolderFaultsTest, ExtensionsFoldAsciiOnly) {
  // U+0130 and U+017F fold to i and s under some rules; here they are other letters.
  builder_
      .File(
          "c0/a.T\xc4\xb0"
          "F")
      .File("c0/b.tif")
      .File("c0/c.bm\xc5\xbf");
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open());
  EXPECT_EQ(dataset->size(), 1u);
}

TEST_F(FolderFaultsTest, NoSampleAtAllTellsWhatWasSeenAndWhatIsAccepted) {
  builder_.File("c0/a.jfif").File("c0/b").File("c0/c.gif");
  EXPECT_THAT(Open(),
              StatusIs(kInvalid, AllOf(HasSubstr("for the classes c0"), HasSubstr(".webp"),
                                       HasSubstr("3 files without an image's extension left "
                                                 "out (c0/a.jfif, c0/b, c0/c.gif)"))));
}

TEST_F(FolderFaultsTest, LinksHaveTheClassOfTheirPlaceAndDanglingOnesAreTold) {
  DatasetBuilder elsewhere;
  elsewhere.File("pool/5000.jpg").File("more/6.jpg");
  builder_.File("c0/0.jpg").File("c1/1.jpg").Link("c0/link.jpg", elsewhere.Path("pool/5000.jpg"));
  builder_.Link("c2", elsewhere.Path("more")).Link("c0/dangling.jpg", "/nonexistent/a.jpg");
  builder_.Link("c1/loop", ".").Link("c1/self.jpg", "self.jpg").Link("c1/cross.jpg", "../c0/0.jpg");
  builder_.Link("c3", "/nonexistent");
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open());
  EXPECT_THAT(dataset->class_names(), ElementsAre("c0", "c1", "c2"));
  // 0.jpg dangling.jpg link.jpg, 1.jpg cross.jpg self.jpg, 6.jpg
  EXPECT_THAT(Labels(*dataset), ElementsAre(0, 0, 0, 1, 1, 1, 2));
  EXPECT_THAT(Counts(*dataset),
              UnorderedElementsAre(Pair("links that lead back to a folder above them", 1),
                                   Pair("dangling links without an image's extension", 1),
                                   Pair("dangling links, taken", 2)));
  EXPECT_THAT(dataset->notes()[2].first, ElementsAre("c0/dangling.jpg", "c1/self.jpg"));
  ByteBuffer buffer;
  EXPECT_THAT(dataset->Read(1, buffer),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("dangling.jpg: is a dangling link, to /nonexistent/a.jpg")));
  EXPECT_THAT(dataset->Read(5, buffer),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("self.jpg: is a dangling link")));
  EXPECT_EQ(dataset->storage().retries, 0u);
}

TEST_F(FolderFaultsTest, ClassNumbersCanBeGiven) {
  for (const char* name : {"1/a.jpg", "10/a.jpg", "a/a.jpg"}) builder_.File(name);
  builder_.Age(std::chrono::seconds(60));
  ASSERT_OK_AND_ASSIGN(const auto own, Open());
  EXPECT_THAT(Labels(*own), ElementsAre(0, 1, 2));
  ASSERT_OK_AND_ASSIGN(const auto given, Open(HiddenRule::kTorchvision,
                                              {{"1", 0}, {"10", 1}, {"2", 2}, {"B", 3}, {"a", 4}}));
  EXPECT_THAT(Labels(*given), ElementsAre(0, 1, 4));
  EXPECT_THAT(given->class_names(), ElementsAre("1", "10", "2", "B", "a"));
  EXPECT_EQ(given->order_fingerprint(), own->order_fingerprint());
  EXPECT_EQ(catalog_.List().size(), 1u);
  EXPECT_THAT(Open(HiddenRule::kTorchvision, {{"1", 0}, {"10", 1}}),
              StatusIs(kInvalid, HasSubstr("class_to_idx: has no number for the class \"a\"")));
  EXPECT_THAT(Open(HiddenRule::kTorchvision, {{"1", 0}, {"1", 1}, {"10", 1}, {"a", 2}}),
              StatusIs(kInvalid, HasSubstr("names the class \"1\" twice")));
}

TEST_F(FolderFaultsTest, AFileOrFolderThatIsGoneHasVanishedSinceIndexing) {
  builder_.File("a/1.jpg").File("a/2.jpg").File("b/3.jpg");
  ASSERT_OK_AND_ASSIGN(const auto dataset, Open());
  builder_.Remove("a/1.jpg").Remove("b/3.jpg").Remove("b").File("b");
  ByteBuffer buffer;
  const auto gone =
      StatusIs(absl::StatusCode::kNotFound, HasSubstr(".jpg: vanished since indexing"));
  EXPECT_THAT(dataset->Read(0, buffer), gone);
  EXPECT_THAT(dataset->Read(1, buffer), IsOk());
  EXPECT_THAT(dataset->Read(2, buffer), gone);
  EXPECT_THAT(Labels(*dataset), ElementsAre(0, 0, 1));
}

}  // namespace
}  // namespace loaderd::dataset
