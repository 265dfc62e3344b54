// SPDX-License-Identifier: Apache-2.0
// What every kind of Dataset must keep. A kind says how to make one with known samples:
//   struct ImageFolderKind { std::shared_ptr<const Dataset> Open(const std::vector<KnownSample>&,
//   const std::vector<std::string>& classes); }; INSTANTIATE_TYPED_TEST_SUITE_P(ImageFolder,
//   DatasetConformanceTest, ImageFolderKind);
// The kind object lives as long as its datasets. Open may be called again, and then means the same
// samples once more.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/base/byte_buffer.h"
#include "server/dataset/dataset.h"
#include "tests/support/status_matchers.h"

namespace loaderd::dataset {

struct KnownSample {
  int64_t label = 0;
  std::string bytes;
};

template <typename Kind>
class DatasetConformanceTest : public testing::Test {
 protected:
  DatasetConformanceTest() {
    // Long, short and of one byte, with zeros and high bytes in them; at least two a class, classes
    // not in one run of equal sizes.
    for (int64_t label = 0; label < 3; ++label) {
      for (int i = 0; i < 2 + label; ++i) {
        std::string bytes = "sample " + std::to_string(label) + "/" + std::to_string(i);
        bytes.push_back('\0');
        bytes.append(static_cast<size_t>(i % 2 == 0 ? 70'000 : 10), static_cast<char>(0x80 + i));
        if (i == 1) bytes = std::string(1, static_cast<char>(label));
        samples_.push_back({label, bytes});
      }
    }
  }
  std::shared_ptr<const Dataset> Open() { return kind_.Open(samples_, classes_); }
  static std::string BytesOf(const ByteBuffer& buffer) {
    return std::string(reinterpret_cast<const char*>(buffer.bytes().data()), buffer.bytes().size());
  }

  std::vector<KnownSample> samples_;
  const std::vector<std::string> classes_ = {"ant", "bee", "cat"};
  Kind kind_;
};

TYPED_TEST_SUITE_P(DatasetConformanceTest);

TYPED_TEST_P(DatasetConformanceTest, SamplesHaveTheirLabelsAndBytes) {
  const auto dataset = this->Open();
  ASSERT_EQ(dataset->size(), this->samples_.size());
  ByteBuffer buffer;
  for (uint64_t i = 0; i < dataset->size(); ++i) {
    EXPECT_EQ(dataset->label(i), this->samples_[i].label) << i;
    ASSERT_THAT(dataset->Read(i, buffer), IsOk());
    EXPECT_EQ(this->BytesOf(buffer), this->samples_[i].bytes) << i;
  }
}

TYPED_TEST_P(DatasetConformanceTest, ReadReplacesWhatTheBufferHeld) {
  const auto dataset = this->Open();
  ByteBuffer buffer;
  std::ranges::fill(buffer.Resize(200'000), 0xEE);
  for (const uint64_t i : {0, 1, 2, 1, 0}) {
    ASSERT_THAT(dataset->Read(i, buffer), IsOk());
    EXPECT_EQ(this->BytesOf(buffer), this->samples_[i].bytes);
  }
}

TYPED_TEST_P(DatasetConformanceTest, ClassesAreInOrderAndLabelsCountThem) {
  const auto dataset = this->Open();
  EXPECT_EQ(dataset->class_names(), this->classes_);
}

TYPED_TEST_P(DatasetConformanceTest, NamesArePrintableAndDiffer) {
  const auto dataset = this->Open();
  std::set<std::string> names;
  for (uint64_t i = 0; i < dataset->size(); ++i) {
    EXPECT_EQ(dataset->Name(i), Printable(dataset->Name(i)));
    names.insert(dataset->Name(i));
  }
  EXPECT_EQ(names.size(), dataset->size());
  EXPECT_EQ(dataset->path(), Printable(dataset->path()));
  EXPECT_FALSE(dataset->path().empty());
  EXPECT_FALSE(dataset->kind().empty());
}

TYPED_TEST_P(DatasetConformanceTest, OrderFingerprintIsThatOfTheNames) {
  const auto dataset = this->Open();
  EXPECT_THAT(dataset->order_fingerprint(), testing::MatchesRegex("[0-9a-f]{64}"));
  EXPECT_EQ(this->Open()->order_fingerprint(), dataset->order_fingerprint());
  this->samples_.pop_back();
  EXPECT_NE(this->Open()->order_fingerprint(), dataset->order_fingerprint());
}

TYPED_TEST_P(DatasetConformanceTest, IndexIsAccountedFor) {
  const auto dataset = this->Open();
  EXPECT_GT(dataset->index_bytes(), 0u);
  EXPECT_LT(dataset->index_bytes(), 1u << 20);
  EXPECT_GE(dataset->index_seconds(), 0);
}

TYPED_TEST_P(DatasetConformanceTest, ManyThreadsReadAtOnce) {
  const auto dataset = this->Open();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ByteBuffer buffer;
      for (uint64_t i = 0; i < 200; ++i) {
        const uint64_t index = (i + static_cast<uint64_t>(t)) % dataset->size();
        ASSERT_THAT(dataset->Read(index, buffer), IsOk());
        ASSERT_EQ(this->BytesOf(buffer), this->samples_[index].bytes);
        ASSERT_EQ(dataset->label(index), this->samples_[index].label);
      }
    });
  }
}

REGISTER_TYPED_TEST_SUITE_P(DatasetConformanceTest, SamplesHaveTheirLabelsAndBytes,
                            ReadReplacesWhatTheBufferHeld, ClassesAreInOrderAndLabelsCountThem,
                            NamesArePrintableAndDiffer, OrderFingerprintIsThatOfTheNames,
                            IndexIsAccountedFor, ManyThreadsReadAtOnce);

}  // namespace loaderd::dataset
