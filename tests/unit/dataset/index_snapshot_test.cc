// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/index_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "server/dataset/image_folder.h"
#include "server/dataset/sha256.h"
#include "tests/support/dataset_builder.h"
#include "tests/support/status_matchers.h"

namespace loaderd::dataset {
namespace {

using testing::HasSubstr;

// The bytes with the checksum that belongs to them.
std::string Sealed(std::string body) {
  Sha256 sha;
  sha.Add(body);
  return body + *sha.Finish();
}

std::string Encoded(const SnapshotOf& of, const FolderIndex& index) {
  std::string bytes;
  const Status status = EncodeSnapshot(of, index, [&](std::string_view piece) {
    bytes.append(piece);
    return absl::OkStatus();
  });
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(bytes.size(), SnapshotBytes(of, index));
  return bytes;
}

class IndexSnapshotTest : public testing::Test {
 protected:
  IndexSnapshotTest() {
    builder_.File("a/2.jpg").File("a/1.png").File("a/deep/er/3.jpg").File("b b/\xff.jpg");
    builder_.File("b b/notes.txt").File("beside").Link("a/gone.jpg", "/nowhere");
  }

  std::shared_ptr<const ImageFolder> Indexed() {
    std::atomic<uint64_t> found = 0;
    auto indexed = ImageFolder::Index(builder_.root(), {.roots = Roots::Unrestricted()}, {}, found);
    EXPECT_THAT(indexed, IsOk());
    return std::move(indexed->folder);
  }
  // An index of one class `c` with the given directory and names.
  static FolderIndex Odd(const std::string& path, const std::string& names, int64_t number = 0,
                         const std::string& name = "c") {
    FolderIndex index;
    index.class_names = {name};
    index.order_fingerprint = std::string(64, 'a');
    index.AddDir("", -1, "");
    index.AddDir(path, number, names);
    return index;
  }

  DatasetBuilder builder_;
  const SnapshotOf of_ = {"/data/train", HiddenRule::kSkip};
};

TEST_F(IndexSnapshotTest, ComesBackAsItWas) {
  const auto folder = Indexed();
  ASSERT_EQ(folder->notes().size(), 3u);
  ASSERT_OK_AND_ASSIGN(IndexSnapshot back, DecodeSnapshot(Encoded(of_, folder->index())));
  EXPECT_EQ(back.of, of_);
  EXPECT_EQ(back.index.notes, folder->notes());
  const auto restored = ImageFolder::Restore(builder_.root(), {.roots = Roots::Unrestricted()},
                                             std::move(back.index));
  EXPECT_EQ(restored->order_fingerprint(), folder->order_fingerprint());
  EXPECT_EQ(restored->class_names(), folder->class_names());
  ASSERT_EQ(restored->size(), 5u);
  for (uint64_t i = 0; i < restored->size(); ++i) {
    EXPECT_EQ(restored->Name(i), folder->Name(i));
    EXPECT_EQ(restored->label(i), folder->label(i));
  }
  ByteBuffer buffer;
  ASSERT_THAT(restored->Read(0, buffer), IsOk());
  EXPECT_EQ(std::string(buffer.bytes().begin(), buffer.bytes().end()), "bytes of a/1.png");
  EXPECT_TRUE(restored->Same(*folder) || restored->roots() != folder->roots());
}

TEST_F(IndexSnapshotTest, EncodingStopsAtTheFirstErrorOfTheWriter) {
  int calls = 0;
  const Status status = EncodeSnapshot(of_, Indexed()->index(), [&](std::string_view) {
    ++calls;
    return absl::ResourceExhaustedError("No space left on device");
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("No space")));
  EXPECT_EQ(calls, 1);
}

TEST_F(IndexSnapshotTest, EveryTruncationIsSeen) {
  const std::string whole = Encoded(of_, Indexed()->index());
  const std::string body = whole.substr(0, whole.size() - Sha256::kBytes);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    ASSERT_THAT(DecodeSnapshot(cut), StatusIs(absl::StatusCode::kDataLoss)) << size;
    if (size == body.size()) continue;
    // With a checksum of its own the lengths alone must do.
    ASSERT_THAT(DecodeSnapshot(Sealed(cut)), StatusIs(absl::StatusCode::kDataLoss))
        << "sealed " << size;
  }
  EXPECT_THAT(DecodeSnapshot(whole + "x"), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeSnapshot(Sealed(body)), IsOk());
  EXPECT_THAT(DecodeSnapshot(Sealed(body + "x")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("belong to nothing")));
}

TEST_F(IndexSnapshotTest, EveryFlippedByteIsSeenByTheChecksum) {
  const std::string whole = Encoded(of_, Indexed()->index());
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    ASSERT_THAT(DecodeSnapshot(damaged), StatusIs(absl::StatusCode::kDataLoss)) << at;
  }
}

// What has a right checksum is either refused, or an index that can be used.
TEST_F(IndexSnapshotTest, WhatSomebodyForgedIsRefusedOrHarmless) {
  const std::string whole = Encoded(of_, Indexed()->index());
  const std::string body = whole.substr(0, whole.size() - Sha256::kBytes);
  std::mt19937 random(7);
  int usable = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string forged = body;
    for (uint32_t n = 1 + random() % 4; n > 0; --n) {
      forged[random() % forged.size()] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    }
    auto snapshot = DecodeSnapshot(Sealed(forged));
    if (!snapshot.ok()) continue;
    ++usable;
    const auto folder =
        ImageFolder::Restore("/r", {.roots = Roots::Unrestricted()}, std::move(snapshot->index));
    ASSERT_GT(folder->size(), 0u);
    for (uint64_t i = 0; i < folder->size(); ++i) {
      ASSERT_GE(folder->label(i), 0);
      ASSERT_LT(static_cast<size_t>(folder->label(i)), folder->class_names().size());
      ASSERT_EQ(folder->Name(i).find("/../"), std::string::npos);
    }
  }
  EXPECT_GT(usable, 0);
  EXPECT_LT(usable, 20000);
}

TEST_F(IndexSnapshotTest, NamesThatLeadOutOfTheFolderAreRefused) {
  const auto refused = [&](const FolderIndex& index) {
    return absl::IsDataLoss(DecodeSnapshot(Encoded(of_, index)).status());
  };
  const std::string jpg("1.jpg\0", 6);
  EXPECT_FALSE(refused(Odd("c", jpg)));
  EXPECT_FALSE(refused(Odd("c/d", jpg)));
  for (const char* path : {"", "d", "cc", "c/", "c/.", "c/..", "c/../d", "c//d", "/c", ".."}) {
    EXPECT_TRUE(refused(Odd(path, jpg))) << path;
  }
  for (const std::string& names : {std::string("../1.jpg\0", 9), std::string("..\0", 3),
                                   std::string("/etc/passwd\0", 12), std::string("\0", 1),
                                   std::string("2\0"
                                               "1\0",
                                               4),
                                   std::string("1\0"
                                               "1\0",
                                               4),
                                   std::string("d/1.jpg\0", 8)}) {
    EXPECT_TRUE(refused(Odd("c", names))) << names;
  }
  EXPECT_TRUE(refused(Odd("c", "")));  // no sample
  EXPECT_TRUE(refused(Odd("c", jpg, 1)));
  EXPECT_TRUE(refused(Odd("c", jpg, -1)));
  for (const char* name : {"", ".", "..", "a/b"}) {
    EXPECT_TRUE(refused(Odd(name, jpg, 0, name))) << name;
  }
}

TEST_F(IndexSnapshotTest, LengthsBeyondTheEndTakeNoMemory) {
  const std::string huge = std::string(7, '\xff') + '\x7f';  // 2^63 - 1
  std::string body(kSnapshotMagic);
  EXPECT_THAT(DecodeSnapshot(Sealed(body + huge)), StatusIs(absl::StatusCode::kDataLoss));
  const std::string whole = Encoded(of_, Indexed()->index());
  body = whole.substr(0, whole.size() - Sha256::kBytes);
  for (size_t at = kSnapshotMagic.size(); at + 8 <= body.size(); ++at) {
    std::string forged = body;
    forged.replace(at, 8, huge);
    (void)DecodeSnapshot(Sealed(forged));  // the sanitizer's limit on one allocation watches
  }
}

}  // namespace
}  // namespace loaderd::dataset
