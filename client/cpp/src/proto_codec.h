// SPDX-License-Identifier: Apache-2.0
// The messages of proto/loaderd/v1/loader.proto, to and from bytes. Their field numbers stand in
// proto_codec.cc only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace loaderd::client {

inline constexpr char kSessionMethod[] = "/loaderd.v1.Loader/Session";
inline constexpr char kDescribeMethod[] = "/loaderd.v1.Loader/Describe";

enum class DeliveryWay : int32_t { kMapped = 1, kInline = 2 };
enum class Handling : int32_t { kLend = 1, kCopy = 2, kInline = 3, kNone = 4 };

// Requests of a Session call.
std::string EncodeOpen(std::string_view job_json, DeliveryWay delivery, std::string_view client,
                       std::string_view expected_order_fingerprint);
std::string EncodeStartEpoch(uint64_t epoch, uint64_t first_batch, uint64_t start, bool goes_on);
std::string EncodeWant(uint32_t count);
std::string EncodeRelease(std::span<const uint32_t> slots);
std::string EncodeIndices(uint64_t start, uint64_t batch, std::span<const int64_t> indices,
                          bool last, bool end);
// The request of a Describe call.
std::string EncodeDescribe(std::string_view dataset_json);

struct Indexing {
  uint64_t files = 0;
};
struct Field {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> stride_bytes;
  uint64_t offset = 0;
};
struct Opened {
  std::string session;
  std::string segment_token;
  std::vector<Field> fields;
  uint64_t slot_bytes = 0;
  uint32_t slot_count = 0;
  uint64_t segment_bytes = 0;
  uint64_t num_samples = 0;
  uint64_t num_batches = 0;
  uint64_t epoch_samples = 0;
  std::string job_fingerprint;
  bool plain_loop_copies = false;
  std::string order_fingerprint;
};
struct BatchRef {
  uint64_t start = 0;
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint32_t slot = 0;
  uint32_t count = 0;
  Handling handling = {};  // may hold any number
  uint32_t bad_count = 0;
  std::string error;
  uint64_t inline_bytes = 0;
  bool storage_gone = false;
};
struct BadSample {
  int64_t index = 0;
  std::string reason;
  int64_t substitute = 0;
};
struct BadSamples {
  std::vector<BadSample> bad;
};
struct Chunk {
  std::string_view data;  // into the message
};
struct EpochEnd {
  uint64_t start = 0;
  uint64_t epoch = 0;
  uint64_t num_batches = 0;
};
// monostate: a reply of a kind that a newer daemon may know.
using Reply = std::variant<std::monostate, Indexing, Opened, BatchRef, BadSamples, Chunk, EpochEnd>;

struct EntryNote {
  std::string kind;
  uint64_t count = 0;
  std::vector<std::string> first;
  bool taken = false;
};
struct DescribeReply {
  uint64_t num_samples = 0;
  uint64_t num_classes = 0;
  std::vector<std::string> class_names;
  std::string order_fingerprint;
  std::vector<EntryNote> notes;
};

// False when `message` is no valid protobuf of that type. Unknown fields are passed over.
bool Decode(std::string_view message, Reply* reply);
bool Decode(std::string_view message, DescribeReply* reply);

}  // namespace loaderd::client
