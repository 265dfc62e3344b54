// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/snapshot_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/dataset_builder.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/dataset/as_other_user.h"

namespace loaderd::dataset {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::chrono::seconds kHour{3600};

// Of one class and one sample, whose name is `kind` over and over.
std::shared_ptr<const FolderIndex> IndexOf(char kind, size_t name_bytes = 10) {
  auto index = std::make_shared<FolderIndex>();
  index->class_names = {"c"};
  index->order_fingerprint = std::string(64, kind);
  index->AddDir("", -1, "");
  index->AddDir("c", 0, std::string(name_bytes, kind) + std::string("\0", 1));
  return index;
}

class SnapshotStoreTest : public testing::Test {
 protected:
  SnapshotStoreTest() { Start(); }

  // Anew, as another daemon.
  void Start(uint64_t max_bytes = 1 << 30, std::chrono::seconds sweep_every = kHour) {
    store_.reset();
    store_.emplace(SnapshotStore::Options{
        .state_dir = folder_.Path("state"), .max_bytes = max_bytes, .sweep_every = sweep_every});
    store_->Flush();
  }
  void Save(const std::shared_ptr<const FolderIndex>& index) {
    store_->Keep(of_, index);
    store_->Flush();
  }
  StatusOr<FolderIndex> Load(char kind) { return store_->Load(of_, std::string(64, kind)); }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    if (!fs::exists(folder_.Path("state/snapshots"))) return files;
    for (const auto& entry : fs::directory_iterator(folder_.Path("state/snapshots")))
      files.push_back(entry.path());
    return files;
  }
  // The file of IndexOf(kind).
  fs::path FileOf(char kind) const {
    for (const fs::path& file : Files()) {
      if (file.string().find(std::string(64, kind)) != std::string::npos) return file;
    }
    return {};
  }
  static void Age(const fs::path& file, std::chrono::hours age) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - age);
  }
  static mode_t Mode(const fs::path& path) {
    struct stat facts;
    return ::stat(path.c_str(), &facts) == 0 ? facts.st_mode & 07777 : 0;
  }

  const SnapshotOf of_ = {"/data/train", HiddenRule::kTorchvision};
  DatasetBuilder folder_;
  std::optional<SnapshotStore> store_;
};

TEST_F(SnapshotStoreTest, WhatWasKeptIsThereForTheNextDaemon) {
  Save(IndexOf('a'));
  Start();
  ASSERT_OK_AND_ASSIGN(const FolderIndex index, Load('a'));
  EXPECT_EQ(index.names, IndexOf('a')->names);
  EXPECT_THAT(Load('b'), StatusIs(absl::StatusCode::kNotFound, HasSubstr("state/snapshots")));
  EXPECT_THAT(store_->Load({"/data/other", of_.hidden}, std::string(64, 'a')),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store_->Load({of_.path, HiddenRule::kSkip}, std::string(64, 'a')),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(SnapshotStoreTest, OnlyItsUserMayLook) {
  Save(IndexOf('a'));
  EXPECT_EQ(Mode(folder_.Path("state")), 0700u);
  EXPECT_EQ(Mode(folder_.Path("state/snapshots")), 0700u);
  EXPECT_EQ(Mode(FileOf('a')), 0600u);
  // A folder that was let open is closed.
  fs::permissions(folder_.Path("state/snapshots"), fs::perms(0755));
  Save(IndexOf('b'));
  EXPECT_EQ(Mode(folder_.Path("state/snapshots")), 0700u);
}

TEST_F(SnapshotStoreTest, NothingIsMadeBeforeThereIsSomethingToKeep) {
  EXPECT_THAT(Load('a'), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(fs::exists(folder_.Path("state")));
}

TEST_F(SnapshotStoreTest, TwoOrdersOfOneFolderAreKept) {
  Save(IndexOf('a'));
  Save(IndexOf('b'));
  EXPECT_THAT(Load('a'), IsOk());
  EXPECT_THAT(Load('b'), IsOk());
}

TEST_F(SnapshotStoreTest, WhatIsDamagedIsToldOnceAndRemoved) {
  Save(IndexOf('a'));
  const fs::path file = FileOf('a');
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_THAT(Load('a'), StatusIs(absl::StatusCode::kDataLoss,
                                  AllOf(HasSubstr(file.string()), HasSubstr("checksum"))));
  EXPECT_THAT(Load('a'), StatusIs(absl::StatusCode::kNotFound));
  // It can be written again.
  Save(IndexOf('a'));
  EXPECT_THAT(Load('a'), IsOk());
}

TEST_F(SnapshotStoreTest, FileOfAnotherOrderOrNoFileAtAllIsRefused) {
  Save(IndexOf('a'));
  Save(IndexOf('b'));
  fs::copy_file(FileOf('a'), FileOf('b'), fs::copy_options::overwrite_existing);
  EXPECT_THAT(Load('b'), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("another dataset or")));
  const fs::path file = FileOf('a');
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(Load('a'), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("regular file")));
  fs::create_symlink("/etc/passwd", file);
  EXPECT_FALSE(Load('a').ok());
}

TEST_F(SnapshotStoreTest, NotAllOfOneThatIsTooLargeIsTakenIntoMemory) {
  Save(IndexOf('a'));
  fs::resize_file(FileOf('a'), uint64_t{1} << 40);  // sparse
  EXPECT_THAT(Load('a'), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("snapshot_bytes")));
}

TEST_F(SnapshotStoreTest, TheOldAreRemovedAndThoseInUseAreNot) {
  const auto held = IndexOf('a');
  Save(held);
  Save(IndexOf('b'));
  Save(IndexOf('c'));
  Age(FileOf('a'), std::chrono::hours(31 * 24));
  Age(FileOf('b'), std::chrono::hours(31 * 24));
  Age(FileOf('c'), std::chrono::hours(29 * 24));
  Save(IndexOf('d'));
  EXPECT_FALSE(FileOf('a').empty());
  EXPECT_TRUE(FileOf('b').empty());
  EXPECT_FALSE(FileOf('c').empty());
  Age(FileOf('c'), std::chrono::hours(31 * 24));
  Start();
  EXPECT_TRUE(FileOf('c').empty());
  // Holding it was using it.
  EXPECT_FALSE(FileOf('a').empty());
}

TEST_F(SnapshotStoreTest, WhatIsInUseIsTouchedNowAndThen) {
  Start(1 << 30, std::chrono::seconds(1));
  const auto held = IndexOf('a');
  Save(held);
  Age(FileOf('a'), std::chrono::hours(31 * 24));
  const auto old = fs::last_write_time(FileOf('a'));
  for (int i = 0; i < 600 && fs::last_write_time(FileOf('a')) == old; ++i) ::usleep(5000);
  EXPECT_GT(fs::last_write_time(FileOf('a')), old + std::chrono::hours(24));
}

TEST_F(SnapshotStoreTest, TheLeastRecentlyUsedGoFirstBeyondTheSum) {
  constexpr size_t kNames = 100'000;
  Start(350'000);
  const auto held = IndexOf('a', kNames);
  Save(held);
  Save(IndexOf('b', kNames));
  Save(IndexOf('c', kNames));
  EXPECT_THAT(Files(), SizeIs(3));
  Age(FileOf('a'), std::chrono::hours(5));
  Age(FileOf('b'), std::chrono::hours(3));
  Age(FileOf('c'), std::chrono::hours(4));
  Save(IndexOf('d', kNames));
  EXPECT_FALSE(FileOf('a').empty());  // in use
  EXPECT_FALSE(FileOf('b').empty());
  EXPECT_TRUE(FileOf('c').empty());
  EXPECT_FALSE(FileOf('d').empty());
  // Reading is using.
  Age(FileOf('b'), std::chrono::hours(2));
  Age(FileOf('d'), std::chrono::hours(1));
  ASSERT_THAT(Load('b'), IsOk());
  Save(IndexOf('e', kNames));
  EXPECT_FALSE(FileOf('b').empty());
  EXPECT_TRUE(FileOf('d').empty());
}

TEST_F(SnapshotStoreTest, OneForWhichThereIsNoRoomCostsTheOthersNothing) {
  Start(250'000);
  const auto held = IndexOf('a', 150'000);
  Save(held);
  const auto small = IndexOf('b', 10'000);
  Save(small);
  testing::internal::CaptureStderr();
  const auto large = IndexOf('c', 150'000);
  Save(large);
  const auto larger = IndexOf('d', 300'000);
  Save(larger);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("more than the daemon's setting snapshot_bytes, 250000")));
  EXPECT_EQ(log.find("snapshot_bytes"), log.rfind("snapshot_bytes")) << "told more than once";
  EXPECT_THAT(Files(), SizeIs(2));
}

TEST_F(SnapshotStoreTest, WhatADeadWriterLeftIsRemovedInTime) {
  Save(IndexOf('a'));
  const fs::path left = folder_.Path("state/snapshots/.unfinished-1-2-3");
  std::ofstream(left) << "half";
  Start();
  EXPECT_TRUE(fs::exists(left));  // its writer may be alive
  Age(left, std::chrono::hours(2));
  Start();
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(FileOf('a').empty());
}

TEST_F(SnapshotStoreTest, WhatNobodyHoldsAnyMoreIsNotWritten) {
  const auto held = IndexOf('a', 50'000'000);
  store_->Keep(of_, held);  // the thread is busy with it
  for (char kind = 'b'; kind < 'f'; ++kind) store_->Keep(of_, IndexOf(kind));
  store_->Flush();
  EXPECT_THAT(Files(), SizeIs(1));
}

TEST_F(SnapshotStoreTest, AStopWritesWhatWaits) {
  std::vector<std::shared_ptr<const FolderIndex>> held;
  for (char kind = 'a'; kind < 'f'; ++kind) {
    held.push_back(IndexOf(kind, 1'000'000));
    store_->Keep(of_, held.back());
  }
  store_.reset();
  EXPECT_THAT(Files(), SizeIs(5));
}

TEST_F(SnapshotStoreTest, AFullDiskIsToldOnceAndLeavesNothingHalf) {
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit little = {100'000, before.rlim_max};
  testing::internal::CaptureStderr();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  const auto first = IndexOf('a', 1'000'000);
  Save(first);
  const auto second = IndexOf('b', 1'000'000);
  Save(second);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(Files(), IsEmpty());
  // The room is there again: the next time it is given it is written.
  Save(first);
  EXPECT_FALSE(FileOf('a').empty());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("index snapshots are not kept in"), HasSubstr("write ")));
  EXPECT_EQ(log.find("are not kept"), log.rfind("are not kept")) << "told more than once";
}

TEST_F(SnapshotStoreTest, AFolderOfSomebodyElseIsNotTrusted) {
  if (!CanBeOtherUser()) GTEST_SKIP() << "needs root, to give a folder away";
  Save(IndexOf('a'));
  ASSERT_EQ(::chown(folder_.Path("state/snapshots").c_str(), 65534, 65534), 0);
  EXPECT_THAT(Load('a'),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("belongs to uid 65534"), HasSubstr("state_dir"))));
}

}  // namespace
}  // namespace loaderd::dataset
