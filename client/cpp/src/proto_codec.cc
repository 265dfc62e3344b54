// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/proto_codec.h"

#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

namespace loaderd::client {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::pbf_writer;
using protozero::tag_and_type;

constexpr auto kVarint = pbf_wire_type::varint;
constexpr auto kBytes = pbf_wire_type::length_delimited;

template <typename Fill>
std::string Request(uint32_t tag, const Fill& fill) {
  std::string out;
  pbf_writer writer(out);
  pbf_writer body(writer, tag);
  fill(body);
  body.commit();
  return out;
}

// Calls take(tag_and_type) for each field; what it does not take is skipped.
template <typename Take>
void ForEachField(pbf_reader reader, const Take& take) {
  while (reader.next()) {
    if (!take(reader, reader.tag_and_type())) reader.skip();
  }
}

bool TakeInts(pbf_reader& reader, pbf_wire_type type, std::vector<int64_t>* out) {
  if (type == kVarint) {
    out->push_back(reader.get_int64());
  } else if (type == kBytes) {
    for (const int64_t value : reader.get_packed_int64()) out->push_back(value);
  } else {
    return false;
  }
  return true;
}

Indexing DecodeIndexing(const pbf_reader& reader) {
  Indexing out;
  ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
    if (tag != tag_and_type(1, kVarint)) return false;
    out.files = field.get_uint64();
    return true;
  });
  return out;
}

Field DecodeField(const pbf_reader& reader) {
  Field out;
  ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
    switch (tag) {
      case tag_and_type(1, kBytes): out.name = field.get_string(); return true;
      case tag_and_type(2, kBytes): out.dtype = field.get_string(); return true;
      case tag_and_type(5, kVarint): out.offset = field.get_uint64(); return true;
      default: break;
    }
    if (field.tag() == 3) return TakeInts(field, field.wire_type(), &out.shape);
    if (field.tag() == 4) return TakeInts(field, field.wire_type(), &out.stride_bytes);
    return false;
  });
  return out;
}

Opened DecodeOpened(const pbf_reader& reader) {
  Opened out;
  ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
    switch (tag) {
      case tag_and_type(1, kBytes): out.session = field.get_string(); return true;
      case tag_and_type(2, kBytes): out.segment_token = field.get_string(); return true;
      case tag_and_type(3, kBytes):
        out.fields.push_back(DecodeField(field.get_message()));
        return true;
      case tag_and_type(4, kVarint): out.slot_bytes = field.get_uint64(); return true;
      case tag_and_type(5, kVarint): out.slot_count = field.get_uint32(); return true;
      case tag_and_type(6, kVarint): out.segment_bytes = field.get_uint64(); return true;
      case tag_and_type(7, kVarint): out.num_samples = field.get_uint64(); return true;
      case tag_and_type(8, kVarint): out.num_batches = field.get_uint64(); return true;
      case tag_and_type(9, kVarint): out.epoch_samples = field.get_uint64(); return true;
      case tag_and_type(10, kBytes): out.job_fingerprint = field.get_string(); return true;
      case tag_and_type(13, kVarint): out.plain_loop_copies = field.get_bool(); return true;
      case tag_and_type(14, kBytes): out.order_fingerprint = field.get_string(); return true;
      default: return false;
    }
  });
  return out;
}

BatchRef DecodeBatchRef(const pbf_reader& reader) {
  BatchRef out;
  ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
    switch (tag) {
      case tag_and_type(1, kVarint): out.start = field.get_uint64(); return true;
      case tag_and_type(2, kVarint): out.epoch = field.get_uint64(); return true;
      case tag_and_type(3, kVarint): out.step = field.get_uint64(); return true;
      case tag_and_type(4, kVarint): out.slot = field.get_uint32(); return true;
      case tag_and_type(5, kVarint): out.count = field.get_uint32(); return true;
      case tag_and_type(6, kVarint): out.handling = Handling{field.get_enum()}; return true;
      case tag_and_type(7, kVarint): out.bad_count = field.get_uint32(); return true;
      case tag_and_type(8, kBytes): out.error = field.get_string(); return true;
      case tag_and_type(9, kVarint): out.inline_bytes = field.get_uint64(); return true;
      case tag_and_type(10, kVarint): out.storage_gone = field.get_bool(); return true;
      default: return false;
    }
  });
  return out;
}

BadSample DecodeBadSample(const pbf_reader& reader) {
  BadSample out;
  ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
    switch (tag) {
      case tag_and_type(1, kVarint): out.index = field.get_int64(); return true;
      case tag_and_type(2, kBytes): out.reason = field.get_string(); return true;
      case tag_and_type(3, kVarint): out.substitute = field.get_int64(); return true;
      default: return false;
    }
  });
  return out;
}

BadSamples DecodeBadSamples(const pbf_reader& reader) {
  BadSamples out;
  ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
    if (tag != tag_and_type(1, kBytes)) return false;
    out.bad.push_back(DecodeBadSample(field.get_message()));
    return true;
  });
  return out;
}

Chunk DecodeChunk(const pbf_reader& reader) {
  Chunk out;
  ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
    if (tag != tag_and_type(1, kBytes)) return false;
    const protozero::data_view view = field.get_view();
    out.data = {view.data(), view.size()};
    return true;
  });
  return out;
}

EpochEnd DecodeEpochEnd(const pbf_reader& reader) {
  EpochEnd out;
  ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
    switch (tag) {
      case tag_and_type(1, kVarint): out.start = field.get_uint64(); return true;
      case tag_and_type(2, kVarint): out.epoch = field.get_uint64(); return true;
      case tag_and_type(3, kVarint): out.num_batches = field.get_uint64(); return true;
      default: return false;
    }
  });
  return out;
}

EntryNote DecodeEntryNote(const pbf_reader& reader) {
  EntryNote out;
  ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
    switch (tag) {
      case tag_and_type(1, kBytes): out.kind = field.get_string(); return true;
      case tag_and_type(2, kVarint): out.count = field.get_uint64(); return true;
      case tag_and_type(3, kBytes): out.first.push_back(field.get_string()); return true;
      case tag_and_type(4, kVarint): out.taken = field.get_bool(); return true;
      default: return false;
    }
  });
  return out;
}

}  // namespace

std::string EncodeOpen(std::string_view job_json, DeliveryWay delivery, std::string_view client,
                       std::string_view expected_order_fingerprint) {
  return Request(1, [&](pbf_writer& body) {
    body.add_string(2, job_json.data(), job_json.size());
    body.add_enum(3, static_cast<int32_t>(delivery));
    body.add_string(5, client.data(), client.size());
    if (!expected_order_fingerprint.empty()) {
      body.add_string(6, expected_order_fingerprint.data(), expected_order_fingerprint.size());
    }
  });
}

std::string EncodeStartEpoch(uint64_t epoch, uint64_t first_batch, uint64_t start, bool goes_on) {
  return Request(2, [&](pbf_writer& body) {
    body.add_uint64(1, epoch);
    body.add_uint64(2, first_batch);
    body.add_uint64(3, start);
    body.add_bool(4, goes_on);
  });
}

std::string EncodeWant(uint32_t count) {
  return Request(3, [&](pbf_writer& body) { body.add_uint32(1, count); });
}

std::string EncodeRelease(std::span<const uint32_t> slots) {
  return Request(4,
                 [&](pbf_writer& body) { body.add_packed_uint32(1, slots.begin(), slots.end()); });
}

std::string EncodeIndices(uint64_t start, uint64_t batch, std::span<const int64_t> indices,
                          bool last, bool end) {
  return Request(5, [&](pbf_writer& body) {
    body.add_uint64(1, start);
    body.add_uint64(2, batch);
    body.add_packed_int64(3, indices.begin(), indices.end());
    body.add_bool(4, last);
    body.add_bool(5, end);
  });
}

std::string EncodeDescribe(std::string_view dataset_json) {
  std::string out;
  pbf_writer(out).add_string(2, dataset_json.data(), dataset_json.size());
  return out;
}

bool Decode(std::string_view message, Reply* reply) {
  try {
    *reply = std::monostate();
    const pbf_reader reader(message.data(), message.size());
    ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
      switch (tag) {
        case tag_and_type(1, kBytes): *reply = DecodeIndexing(field.get_message()); return true;
        case tag_and_type(2, kBytes): *reply = DecodeOpened(field.get_message()); return true;
        case tag_and_type(3, kBytes): *reply = DecodeBatchRef(field.get_message()); return true;
        case tag_and_type(4, kBytes): *reply = DecodeBadSamples(field.get_message()); return true;
        case tag_and_type(5, kBytes): *reply = DecodeChunk(field.get_message()); return true;
        case tag_and_type(6, kBytes): *reply = DecodeEpochEnd(field.get_message()); return true;
        default: return false;
      }
    });
    return true;
  } catch (const protozero::exception&) {
    return false;
  }
}

bool Decode(std::string_view message, DescribeReply* reply) {
  try {
    *reply = DescribeReply();
    const pbf_reader reader(message.data(), message.size());
    ForEachField(reader, [&](pbf_reader& field, uint32_t tag) {
      switch (tag) {
        case tag_and_type(1, kVarint): reply->num_samples = field.get_uint64(); return true;
        case tag_and_type(2, kVarint): reply->num_classes = field.get_uint64(); return true;
        case tag_and_type(3, kBytes): reply->class_names.push_back(field.get_string()); return true;
        case tag_and_type(4, kBytes): reply->order_fingerprint = field.get_string(); return true;
        case tag_and_type(5, kBytes):
          reply->notes.push_back(DecodeEntryNote(field.get_message()));
          return true;
        default: return false;
      }
    });
    return true;
  } catch (const protozero::exception&) {
    return false;
  }
}

}  // namespace loaderd::client
