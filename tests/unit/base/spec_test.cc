// SPDX-License-Identifier: Apache-2.0
#include "server/base/spec.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "server/base/byte_buffer.h"

namespace loaderd {
namespace {

FieldLayout Field(const char* name, DType dtype, std::vector<int64_t> shape) {
  return {.name = name, .dtype = dtype, .shape = std::move(shape)};
}

TEST(LayOutTest, FieldsFollowEachOtherAtMultiplesOf64Bytes) {
  const BatchLayout layout =
      LayOut({Field("images", DType::kUint8, {3, 5, 7, 3}), Field("labels", DType::kInt64, {3}),
              Field("index", DType::kInt64, {3}), Field("pad", DType::kBool, {3})});
  ASSERT_EQ(layout.fields.size(), 4u);
  EXPECT_EQ(layout.fields[0].offset, 0u);
  EXPECT_EQ(layout.fields[0].RowBytes(), 105u);
  EXPECT_EQ(layout.fields[0].Bytes(), 315u);
  EXPECT_EQ(layout.fields[1].offset, 320u);
  EXPECT_EQ(layout.fields[2].offset, 384u);
  EXPECT_EQ(layout.fields[3].offset, 448u);
  EXPECT_EQ(layout.slot_bytes, 4096u);
}

TEST(LayOutTest, SlotsEndOnPageBoundaries) {
  EXPECT_EQ(LayOut({Field("a", DType::kUint8, {4096})}).slot_bytes, 4096u);
  EXPECT_EQ(LayOut({Field("a", DType::kUint8, {4097})}).slot_bytes, 8192u);
  EXPECT_EQ(LayOut({}).slot_bytes, 4096u);
}

TEST(LayOutTest, TheLargestBatchDoesNotOverflow) {
  const BatchLayout layout = LayOut({Field("images", DType::kFloat32, {65536, 3, 65535, 65535}),
                                     Field("pad", DType::kBool, {65536})});
  EXPECT_EQ(layout.fields[0].Bytes(), 65536ull * 3 * 65535 * 65535 * 4);
  EXPECT_GT(layout.slot_bytes, layout.fields[0].Bytes());
}

TEST(DTypeTest, NamesAndSizesAreNumpys) {
  EXPECT_EQ(DTypeName(DType::kBfloat16), "bfloat16");
  EXPECT_EQ(DTypeName(DType::kFloat16), "float16");
  EXPECT_EQ(DTypeBytes(DType::kBool), 1u);
  EXPECT_EQ(DTypeBytes(DType::kBfloat16), 2u);
  EXPECT_EQ(DTypeBytes(DType::kFloat32), 4u);
  EXPECT_EQ(DTypeBytes(DType::kInt64), 8u);
}

TEST(ByteBufferTest, KeepsItsMemoryUntilItIsFreed) {
  ByteBuffer buffer;
  EXPECT_EQ(buffer.Resize(100).size(), 100u);
  const uint8_t* const place = buffer.bytes().data();
  EXPECT_EQ(buffer.Resize(10).data(), place);
  EXPECT_EQ(buffer.bytes().size(), 10u);
  EXPECT_EQ(buffer.Resize(100).data(), place);
  buffer.Resize(101);
  EXPECT_GE(buffer.capacity(), 150u);
  buffer.Free();
  EXPECT_EQ(buffer.capacity(), 0u);
  EXPECT_TRUE(buffer.bytes().empty());
}

}  // namespace
}  // namespace loaderd
