// SPDX-License-Identifier: Apache-2.0
// The daemon's half of loader.proto's messages: what a test's daemon says and understands.
#pragma once

#include <cstdint>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace loaderd::client::said {

template <typename Fill>
std::string Response(uint32_t tag, const Fill& fill) {
  std::string out;
  protozero::pbf_writer writer(out);
  {
    protozero::pbf_writer body(writer, tag);
    fill(body);
  }
  return out;
}

inline std::string Indexing(uint64_t files) {
  return Response(1, [&](auto& body) { body.add_uint64(1, files); });
}

struct FieldSpec {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  uint64_t offset = 0;
};

// Slots of two pages with room for 4 samples: 1,000 bytes of pixels each and an index.
struct OpenedSpec {
  std::string session = "s-1";
  std::string token = "0123456789abcdef";
  std::vector<FieldSpec> fields = {{"images", "uint8", {4, 10, 100}, {1000, 100, 1}, 0},
                                   {"index", "int64", {4}, {8}, 4032}};
  uint64_t slot_bytes = 8192;
  uint32_t slot_count = 4;
  uint64_t segment_bytes = 4 * 8192;
  uint64_t num_samples = 40;
  uint64_t num_batches = 10;
  std::string order_fingerprint = "order-fingerprint";
};

inline std::string Opened(const OpenedSpec& spec = {}) {
  return Response(2, [&](auto& body) {
    body.add_string(1, spec.session);
    body.add_bytes(2, spec.token);
    for (const FieldSpec& field : spec.fields) {
      protozero::pbf_writer inner(body, 3);
      inner.add_string(1, field.name);
      inner.add_string(2, field.dtype);
      inner.add_packed_int64(3, field.shape.begin(), field.shape.end());
      for (const int64_t stride : field.strides)
        inner.add_int64(4, stride);  // unpacked is valid too
      inner.add_uint64(5, field.offset);
    }
    body.add_uint64(4, spec.slot_bytes);
    body.add_uint32(5, spec.slot_count);
    body.add_uint64(6, spec.segment_bytes);
    body.add_uint64(7, spec.num_samples);
    body.add_uint64(8, spec.num_batches);
    body.add_uint64(9, spec.num_samples);
    body.add_string(10, "job-fingerprint");
    body.add_string(900, "of a newer daemon");
    body.add_bool(13, spec.slot_count < 4);
    body.add_string(14, spec.order_fingerprint);
  });
}

constexpr int kLend = 1;
constexpr int kCopy = 2;
constexpr int kInline = 3;
constexpr int kNone = 4;

struct BatchSpec {
  uint64_t start = 1;
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint32_t slot = 0;
  uint32_t count = 4;
  int handling = kLend;
  uint32_t bad_count = 0;
  std::string error = {};
  uint64_t inline_bytes = 0;
};

inline std::string Batch(const BatchSpec& spec) {
  return Response(3, [&](auto& body) {
    body.add_uint64(1, spec.start);
    body.add_uint64(2, spec.epoch);
    body.add_uint64(3, spec.step);
    body.add_uint32(4, spec.slot);
    body.add_uint32(5, spec.count);
    body.add_enum(6, spec.handling);
    body.add_uint32(7, spec.bad_count);
    body.add_string(8, spec.error);
    body.add_uint64(9, spec.inline_bytes);
  });
}

inline std::string BadSample(int64_t index, const std::string& reason, int64_t substitute) {
  return Response(4, [&](auto& body) {
    protozero::pbf_writer inner(body, 1);
    inner.add_int64(1, index);
    inner.add_string(2, reason);
    inner.add_int64(3, substitute);
  });
}

inline std::string Chunk(const std::string& data) {
  return Response(5, [&](auto& body) { body.add_bytes(1, data); });
}

inline std::string EpochEnd(uint64_t start, uint64_t epoch) {
  return Response(6, [&](auto& body) {
    body.add_uint64(1, start);
    body.add_uint64(2, epoch);
  });
}

// A SessionRequest; `kind` is the number of its oneof's field.
struct Request {
  uint32_t kind = 0;
  std::string json;
  int64_t delivery = 0;
  std::string client;
  std::string expected_order_fingerprint;
  uint64_t epoch = 0;
  uint64_t first_batch = 0;
  uint64_t start = 0;
  bool goes_on = false;
  uint32_t count = 0;
  std::vector<uint32_t> slots;
  uint64_t batch = 0;
  std::vector<int64_t> indices;
  bool last = false;
  bool end = false;
};
constexpr uint32_t kOpen = 1;
constexpr uint32_t kStartEpoch = 2;
constexpr uint32_t kWant = 3;
constexpr uint32_t kRelease = 4;
constexpr uint32_t kIndices = 5;

inline Request Understand(std::string_view message) {
  Request out;
  protozero::pbf_reader reader(message.data(), message.size());
  if (!reader.next()) return out;
  out.kind = reader.tag();
  protozero::pbf_reader body = reader.get_message();
  while (body.next()) {
    switch (out.kind * 10 + body.tag()) {
      case 12: out.json = body.get_string(); break;
      case 13: out.delivery = body.get_enum(); break;
      case 15: out.client = body.get_string(); break;
      case 16: out.expected_order_fingerprint = body.get_string(); break;
      case 21: out.epoch = body.get_uint64(); break;
      case 22: out.first_batch = body.get_uint64(); break;
      case 23: out.start = body.get_uint64(); break;
      case 24: out.goes_on = body.get_bool(); break;
      case 31: out.count = body.get_uint32(); break;
      case 41:
        for (const uint32_t slot : body.get_packed_uint32()) out.slots.push_back(slot);
        break;
      case 51: out.start = body.get_uint64(); break;
      case 52: out.batch = body.get_uint64(); break;
      case 53:
        for (const int64_t index : body.get_packed_int64()) out.indices.push_back(index);
        break;
      case 54: out.last = body.get_bool(); break;
      case 55: out.end = body.get_bool(); break;
      default: body.skip();
    }
  }
  return out;
}

}  // namespace loaderd::client::said
