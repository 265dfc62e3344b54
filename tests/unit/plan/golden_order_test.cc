// SPDX-License-Identifier: Apache-2.0
// golden/order.json: orders that torch made.
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "server/plan/epoch_plan.h"
#include "tests/support/shared_files.h"

namespace loaderd::plan {
namespace {

// The file is a list of flat objects. Seeds have 63 bits, which JSON readers that know only doubles
// lose.
class Cases {
 public:
  explicit Cases(const std::string& text) : text_(text) {}
  bool Next() {
    const size_t begin = text_.find('{', end_);
    if (begin == text_.npos) return false;
    end_ = text_.find('}', begin);
    object_ = text_.substr(begin, end_ - begin);
    return end_ != text_.npos;
  }
  std::string Value(const std::string& key) const {
    const std::string quoted = "\"" + key + "\":";
    size_t begin = object_.find(quoted);
    if (begin == object_.npos) return "";
    begin = object_.find_first_not_of(" \n\"", begin + quoted.size());
    return object_.substr(begin, object_.find_first_of(",\"\n ", begin) - begin);
  }
  uint64_t Number(const std::string& key) const {
    const std::string value = Value(key);
    return value.empty() ? 0 : std::stoull(value);
  }
  const std::string& object() const { return object_; }

 private:
  const std::string& text_;
  std::string object_;
  size_t end_ = 0;
};

std::string Sha256OfIndices(const EpochPlan& plan) {
  std::string bytes;
  bytes.reserve(plan.num_samples() * 8);
  std::vector<PlannedSample> batch;
  for (uint64_t k = 0; k < plan.num_batches(); ++k) {
    plan.Batch(k, batch);
    for (const PlannedSample& sample : batch) {
      for (int shift = 0; shift < 64; shift += 8) {
        bytes.push_back(static_cast<char>(sample.index >> shift));
      }
    }
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), size));
}

TEST(GoldenOrderTest, EveryOrderEqualsTorchs) {
  const std::string path = SharedFile("golden/order.json");
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << path << " is not there";
  std::stringstream text;
  text << file.rdbuf();
  const std::string json = text.str();
  std::map<std::string, int> equal;
  for (Cases cases(json); cases.Next();) {
    Order order{.kind = OrderKind::kTorchShuffle, .seed = cases.Number("seed")};
    uint64_t epoch = 0;
    if (cases.Value("kind") == "distributed") {
      if (cases.Value("shuffle") == "false") order.kind = OrderKind::kSequential;
      order.world_size = static_cast<uint32_t>(cases.Number("world"));
      order.rank = static_cast<uint32_t>(cases.Number("rank"));
      order.shard = cases.Value("drop_last") == "true" ? ShardRule::kDrop : ShardRule::kPad;
      epoch = cases.Number("epoch");
    }
    const EpochPlan plan(order, cases.Number("n"), 1000, false, epoch);
    ASSERT_EQ(plan.num_samples(), cases.Number("count")) << cases.object();
    ASSERT_EQ(Sha256OfIndices(plan), cases.Value("sha256")) << cases.object();
    ++equal[cases.Value("kind")];
  }
  EXPECT_EQ(equal["randperm"], 48);
  EXPECT_EQ(equal["distributed"], 648);
}

}  // namespace
}  // namespace loaderd::plan
