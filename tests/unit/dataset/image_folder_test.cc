// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/image_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/dataset_builder.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/dataset/as_other_user.h"
#include "tests/unit/dataset/dataset_conformance.h"

namespace loaderd::dataset {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

StatusOr<ImageFolder::Indexed> Index(const std::string& path, int threads = 2,
                                     std::stop_token stop = {},
                                     uint64_t max_sample_bytes = 1 << 20) {
  std::atomic<uint64_t> found = 0;
  auto indexed = ImageFolder::Index(path,
                                    {.roots = Roots::Unrestricted(),
                                     .max_sample_bytes = max_sample_bytes,
                                     .index_threads = threads},
                                    stop, found);
  if (indexed.ok()) {
    EXPECT_EQ(found, indexed->folder->size());
  }
  return indexed;
}

class ImageFolderTest : public testing::Test {
 protected:
  StatusOr<std::unique_ptr<const ImageFolder>> Open(int threads = 2) {
    auto indexed = Index(builder_.root(), threads);
    if (!indexed.ok()) return indexed.status();
    return std::move(indexed->folder);
  }
  // "LABEL path", relative.
  static std::vector<std::string> Listed(const ImageFolder& folder) {
    std::vector<std::string> listed;
    for (uint64_t i = 0; i < folder.size(); ++i) {
      listed.push_back(std::to_string(folder.label(i)) +
                       folder.Name(i).substr(folder.path().size()));
    }
    return listed;
  }
  std::vector<std::string> Listed() {
    const auto folder = Open();
    EXPECT_THAT(folder, IsOk());
    return folder.ok() ? Listed(**folder) : std::vector<std::string>();
  }
  static std::string Read(const ImageFolder& folder, uint64_t index) {
    ByteBuffer buffer;
    const Status status = folder.Read(index, buffer);
    if (!status.ok()) return status.ToString();
    return std::string(buffer.bytes().begin(), buffer.bytes().end());
  }

  DatasetBuilder builder_;
};

TEST_F(ImageFolderTest, ClassesAndFilesComeInByteOrder) {
  builder_.File("b/2.jpg")
      .File("b/10.jpg")
      .File("B/1.jpg")
      .File("a/x.jpg")
      .File("a/X.jpg")
      .File("\xc3\xa4/1.jpg")
      .File("_/1.png");
  EXPECT_THAT(Listed(), ElementsAre("0/B/1.jpg", "1/_/1.png", "2/a/X.jpg", "2/a/x.jpg",
                                    "3/b/10.jpg", "3/b/2.jpg", "4/\xc3\xa4/1.jpg"));
}

TEST_F(ImageFolderTest, NestedFoldersAreSortedByTheirWholePath) {
  // '-' sorts before '/', and that before 'b': sorted(os.walk()) compares whole paths.
  builder_.File("c/z.jpg")
      .File("c/a/z.jpg")
      .File("c/a-b/z.jpg")
      .File("c/a/b/z.jpg")
      .File("c/ab/z.jpg")
      .File("c/a/a.jpg");
  EXPECT_THAT(Listed(), ElementsAre("0/c/z.jpg", "0/c/a/a.jpg", "0/c/a/z.jpg", "0/c/a-b/z.jpg",
                                    "0/c/a/b/z.jpg", "0/c/ab/z.jpg"));
}

TEST_F(ImageFolderTest, TakesTorchvisionsExtensionsInAnyCase) {
  for (const char* name :
       {"1.jpg", "2.JPEG", "3.PnG", "4.ppm", "5.bmp", "6.pgm", "7.tif", "8.TIFF", "9.webp"}) {
    builder_.File(std::string("c/") + name);
  }
  builder_.File("c/a.gif")
      .File("c/b.txt")
      .File("c/jpg")
      .File("c/d.jpg.bak")
      .File("c/e.jpgx")
      .File("c/f");
  EXPECT_EQ(Listed().size(), 9u);
}

TEST_F(ImageFolderTest, DotFilesAndDotFoldersCount) {
  builder_.File("c/.jpg").File("c/.hidden.jpg").File(".d/1.jpg").File("c/.e/1.jpg");
  EXPECT_THAT(Listed(), ElementsAre("0/.d/1.jpg", "1/c/.hidden.jpg", "1/c/.jpg", "1/c/.e/1.jpg"));
}

TEST_F(ImageFolderTest, FilesBesideTheClassesAreLeftOut) {
  builder_.File("1.jpg").File("readme").File("c/1.jpg");
  EXPECT_THAT(Listed(), ElementsAre("0/c/1.jpg"));
}

TEST_F(ImageFolderTest, AFolderNamedAsAnImageIsAFolder) {
  builder_.File("c/1.jpg/2.jpg").File("d.png/1.jpg");
  EXPECT_THAT(Listed(), ElementsAre("0/c/1.jpg/2.jpg", "1/d.png/1.jpg"));
}

TEST_F(ImageFolderTest, LinksAreFollowed) {
  DatasetBuilder elsewhere;
  elsewhere.File("pool/1.jpg", "one").File("pool/sub/2.jpg", "two");
  builder_.File("c/0.jpg")
      .Link("c/file.jpg", elsewhere.Path("pool/1.jpg"))
      .Link("c/folder", elsewhere.Path("pool"));
  builder_.Link("linked", elsewhere.Path("pool"))
      .Link("c/nowhere.jpg", "/nowhere/at/all")
      .Link("c/nowhere", "/nowhere");
  ASSERT_OK_AND_ASSIGN(const auto folder, Open());
  EXPECT_THAT(Listed(*folder),
              ElementsAre("0/c/0.jpg", "0/c/file.jpg", "0/c/nowhere.jpg", "0/c/folder/1.jpg",
                          "0/c/folder/sub/2.jpg", "1/linked/1.jpg", "1/linked/sub/2.jpg"));
  EXPECT_EQ(Read(*folder, 1), "one");
  EXPECT_EQ(Read(*folder, 4), "two");
  EXPECT_THAT(Read(*folder, 2), AllOf(HasSubstr("NOT_FOUND"), HasSubstr("nowhere.jpg")));
}

TEST_F(ImageFolderTest, TheSameFolderTwiceIsNoLoop) {
  builder_.File("a/1.jpg").Link("b", "a").File("c/1.jpg").Link("c/a", "../a");
  EXPECT_THAT(Listed(), ElementsAre("0/a/1.jpg", "1/b/1.jpg", "2/c/1.jpg", "2/c/a/1.jpg"));
}

TEST_F(ImageFolderTest, ALoopOfLinksIsNotedAndNotEntered) {
  builder_.File("a/1.jpg").Folder("a/b/c").Link("a/b/c/up", "../../../a");
  builder_.Link("a/b/root", builder_.root()).Link("a/b/c/self", "self");
  ASSERT_OK_AND_ASSIGN(const auto folder, Open());
  EXPECT_THAT(Listed(*folder), ElementsAre("0/a/1.jpg"));
  ASSERT_EQ(folder->notes().size(), 2u);
  EXPECT_EQ(folder->notes()[0].kind, "links that lead back to a folder above them");
  EXPECT_THAT(folder->notes()[0].first, ElementsAre("a/b/c/up", "a/b/root"));
  EXPECT_THAT(folder->notes()[1].first, ElementsAre("a/b/c/self"));
}

TEST_F(ImageFolderTest, EmptyClassesAreToldInTorchvisionsWords) {
  builder_.File("a/1.jpg").Folder("b").File("d/notes.txt").File("c/sub/1.jpg");
  EXPECT_THAT(
      Open(),
      StatusIs(kInvalid,
               HasSubstr("Found no valid file for the classes b, d. Supported extensions are: "
                         ".jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp")));
}

TEST_F(ImageFolderTest, ManyEmptyClassesAreToldInPart) {
  for (int i = 100; i < 150; ++i) builder_.Folder("c" + std::to_string(i));
  EXPECT_THAT(Open(), StatusIs(kInvalid,
                               AllOf(HasSubstr("c100, c101, "), HasSubstr("c119 and 30 more. "))));
}

TEST_F(ImageFolderTest, AFolderWithoutClassesIsToldInTorchvisionsWords) {
  builder_.File("1.jpg");
  EXPECT_THAT(Open(),
              StatusIs(kInvalid, "Couldn't find any class folder in " + builder_.root() +
                                     ". Seen: 1 files beside the class folders left out (1.jpg)."));
}

TEST_F(ImageFolderTest, AMissingFolderOrAFileIsNamed) {
  EXPECT_THAT(Index(builder_.Path("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(builder_.Path("none"))));
  builder_.File("file");
  EXPECT_THAT(Index(builder_.Path("file")), StatusIs(kInvalid, HasSubstr(builder_.Path("file"))));
}

TEST_F(ImageFolderTest, AnUnreadableFolderIsAnErrorThatNamesIt) {
  if (!CanBeOtherUser()) GTEST_SKIP() << "needs root, to become another user";
  builder_.File("a/1.jpg").File("b/1.jpg").File("b/deep/2.jpg").Mode("b/deep", 0700);
  EXPECT_THAT(AsOtherUser([&] { return Open(1).status().ToString(); }),
              AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr("/b/deep: Permission denied")));
  builder_.Mode("b", 0700);
  EXPECT_THAT(AsOtherUser([&] { return Open(1).status().ToString(); }),
              HasSubstr("/b: Permission denied"));
}

TEST_F(ImageFolderTest, AnUnreadableFileIsADataFault) {
  if (!CanBeOtherUser()) GTEST_SKIP() << "needs root, to become another user";
  builder_.File("a/1.jpg").Mode("a/1.jpg", 0600);
  ASSERT_OK_AND_ASSIGN(const auto folder, Open());
  EXPECT_THAT(AsOtherUser([&] { return Read(*folder, 0); }),
              HasSubstr("a/1.jpg: Permission denied"));
}

TEST_F(ImageFolderTest, FaultyFilesAreToldByNameAndReason) {
  builder_.File("c/0-gone.jpg")
      .File("c/1-empty.jpg", "")
      .Fifo("c/2-fifo.jpg")
      .File("c/3-long.jpg", std::string(5000, 'x'));
  builder_.File("c/4-good.jpg", "good");
  ASSERT_OK_AND_ASSIGN(auto indexed, Index(builder_.root(), 1, {}, 4999));
  builder_.Remove("c/0-gone.jpg");
  ByteBuffer buffer;
  const auto read = [&](uint64_t i) { return indexed.folder->Read(i, buffer); };
  const auto lost = absl::StatusCode::kDataLoss;
  EXPECT_THAT(read(0), StatusIs(absl::StatusCode::kNotFound,
                                indexed.folder->Name(0) + ": vanished since indexing"));
  EXPECT_THAT(read(1), StatusIs(lost, indexed.folder->Name(1) + ": is an empty file"));
  EXPECT_THAT(read(2), StatusIs(lost, indexed.folder->Name(2) + ": is not a regular file"));
  EXPECT_THAT(read(3), StatusIs(lost, AllOf(HasSubstr(indexed.folder->Name(3) +
                                                      ": has 5000 bytes, more than the 4999"),
                                            HasSubstr("limits.max_sample_bytes"))));
  EXPECT_THAT(read(4), IsOk());
  builder_.Remove("c/4-good.jpg").Folder("c/4-good.jpg");
  EXPECT_THAT(read(4), StatusIs(lost, HasSubstr("is not a regular file")));
}

TEST_F(ImageFolderTest, ReadsKeepNoDescriptor) {
  const auto open_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  builder_.File("c/1.jpg").File("c/2.jpg", "").File("d/3.jpg");
  const auto before = open_descriptors();
  ASSERT_OK_AND_ASSIGN(const auto folder, Open());
  for (uint64_t i = 0; i < folder->size(); ++i) Read(*folder, i);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ImageFolderTest, NamesThatAreNoUtf8Work) {
  builder_.File("\xff/\xfe\n.jpg", "odd");
  ASSERT_OK_AND_ASSIGN(const auto folder, Open());
  EXPECT_EQ(Read(*folder, 0), "odd");
  EXPECT_THAT(folder->Name(0), EndsWith("/\\xff/\\xfe\\n.jpg"));
}

TEST_F(ImageFolderTest, FingerprintIsThatOfNamesNotOfRootTimesOrContent) {
  builder_.File("a/1.jpg").File("b/1.jpg");
  ASSERT_OK_AND_ASSIGN(const auto folder, Open());
  DatasetBuilder other;
  other.File("a/1.jpg", "else")
      .File("b/1.jpg", "other")
      .File("b/notes.txt")
      .Folder("b/empty")
      .Age(std::chrono::hours(9));
  ASSERT_OK_AND_ASSIGN(auto same, Index(other.root()));
  EXPECT_EQ(same.folder->order_fingerprint(), folder->order_fingerprint());
  other.File("a/2.jpg");
  ASSERT_OK_AND_ASSIGN(auto more, Index(other.root()));
  EXPECT_NE(more.folder->order_fingerprint(), folder->order_fingerprint());
}

TEST_F(ImageFolderTest, ThreadsDoNotChangeTheIndex) {
  for (int i = 0; i < 300; ++i) {
    builder_.File("c" + std::to_string(i % 7) + "/d" + std::to_string(i % 11) + "/" +
                  std::to_string(i) + ".jpg");
  }
  ASSERT_OK_AND_ASSIGN(const auto one, Open(1));
  for (const int threads : {2, 5, 16}) {
    ASSERT_OK_AND_ASSIGN(const auto many, Open(threads));
    EXPECT_EQ(Listed(*many), Listed(*one));
    EXPECT_EQ(many->order_fingerprint(), one->order_fingerprint());
  }
}

TEST_F(ImageFolderTest, StopEndsTheIndexing) {
  builder_.File("c/1.jpg");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(Index(builder_.root(), 2, stop.get_token()), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(ImageFolderTest, SeesChangesOfFoldersAtAnyDepth) {
  builder_.File("c/1.jpg").File("c/sub/2.jpg").Folder("c/empty").Age(std::chrono::seconds(60));
  ASSERT_OK_AND_ASSIGN(auto indexed, Index(builder_.root()));
  EXPECT_TRUE(indexed.folder->Unchanged(indexed.state));
  for (const char* added : {"c/empty/3.jpg", "c/sub/4.jpg", "d/5.jpg"}) {
    ASSERT_OK_AND_ASSIGN(indexed, Index(builder_.Age(std::chrono::seconds(60)).root()));
    ASSERT_TRUE(indexed.folder->Unchanged(indexed.state));
    builder_.File(added);
    EXPECT_FALSE(indexed.folder->Unchanged(indexed.state)) << added;
  }
}

TEST_F(ImageFolderTest, SeesAChangeWhoseTimeWasSetBack) {
  builder_.File("c/1.jpg").Age(std::chrono::seconds(60));
  ASSERT_OK_AND_ASSIGN(const auto indexed, Index(builder_.root()));
  struct stat before = {};
  ASSERT_EQ(::stat((builder_.root() + "/c").c_str(), &before), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // a tick of the file system's clock
  builder_.File("c/2.jpg");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, (builder_.root() + "/c").c_str(), times, 0), 0);
  EXPECT_FALSE(indexed.folder->Unchanged(indexed.state));
}

TEST_F(ImageFolderTest, AFolderThatHasJustChangedIsNotTrusted) {
  builder_.File("c/1.jpg");
  ASSERT_OK_AND_ASSIGN(auto indexed, Index(builder_.root()));
  EXPECT_TRUE(indexed.state.racy);
  EXPECT_FALSE(indexed.folder->Unchanged(indexed.state));
}

TEST_F(ImageFolderTest, ALargeIndexIsCompact) {
  constexpr int kFiles = 1000, kClasses = 200;
  uint64_t name_bytes = 0;
  for (int i = 0; i < kFiles; ++i) {
    const std::string name = "n01440764_" + std::to_string(i) + ".JPEG";
    builder_.File("n00000000/" + name, "");
    name_bytes += kClasses * name.size();
  }
  for (int c = 1; c < kClasses; ++c)
    builder_.Link("n" + std::to_string(10'000'000 + c), "n00000000");
  ASSERT_OK_AND_ASSIGN(const auto folder, Open());
  ASSERT_EQ(folder->size(), uint64_t{kFiles} * kClasses);
  EXPECT_LT(folder->index_bytes(), name_bytes + 8 * folder->size());
  EXPECT_EQ(folder->label(0), 0);
  EXPECT_EQ(folder->label(folder->size() - 1), kClasses - 1);
  EXPECT_THAT(folder->Name(folder->size() - 1), EndsWith("/n10000199/n01440764_999.JPEG"));
}

// For the suite that all kinds run.
class ImageFolderKind {
 public:
  std::shared_ptr<const Dataset> Open(const std::vector<KnownSample>& samples,
                                      const std::vector<std::string>& classes) {
    DatasetBuilder& builder = *builders_.emplace_back(std::make_unique<DatasetBuilder>());
    for (size_t i = 0; i < samples.size(); ++i) {
      builder.File(
          classes[static_cast<size_t>(samples[i].label)] + "/" + std::to_string(100 + i) + ".jpg",
          samples[i].bytes);
    }
    auto indexed = Index(builder.root());
    return indexed.ok() ? std::shared_ptr<const Dataset>(std::move(indexed->folder)) : nullptr;
  }

 private:
  std::vector<std::unique_ptr<DatasetBuilder>> builders_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(ImageFolder, DatasetConformanceTest, ImageFolderKind);

}  // namespace
}  // namespace loaderd::dataset
