// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/layout.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "client/cpp/src/text.h"

namespace loaderd::client {
namespace {

constexpr size_t kMaxFields = 1024;
constexpr size_t kMaxDimensions = 32;
constexpr uint64_t kAlignment = 64;
constexpr int64_t kMaxCapacity = 1
                                 << 20;  // far above the largest batch size that a job may ask for

int64_t ItemBytes(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, int64_t>, 13> kTypes = {{
      {"bool", 1},
      {"int8", 1},
      {"uint8", 1},
      {"int16", 2},
      {"uint16", 2},
      {"float16", 2},
      {"bfloat16", 2},
      {"int32", 4},
      {"uint32", 4},
      {"float32", 4},
      {"int64", 8},
      {"uint64", 8},
      {"float64", 8},
  }};
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

std::string FieldFault(const Field& field, uint64_t slot_bytes) {
  const int64_t item = ItemBytes(field.dtype);
  if (field.name.empty()) return "has no name";
  if (item == 0) return "has the unknown dtype '" + Printable(field.dtype) + "'";
  if (field.shape.empty() || field.shape.size() > kMaxDimensions) {
    return "has " + std::to_string(field.shape.size()) + " dimensions (1 to 32 are allowed)";
  }
  if (field.shape.size() != field.stride_bytes.size()) return "has a stride count unlike its shape";
  if (field.shape[0] > kMaxCapacity) return "has room for too many samples";
  int64_t stride = item;
  for (size_t i = field.shape.size(); i-- > 0;) {
    if (field.shape[i] <= 0) return "has an empty dimension";
    if (field.stride_bytes[i] != stride) return "is not contiguous";
    if (__builtin_mul_overflow(stride, field.shape[i], &stride)) return "is too large";
  }
  if (field.offset % kAlignment != 0) return "is not aligned to 64 bytes";
  const auto bytes = static_cast<uint64_t>(stride);
  if (field.offset > slot_bytes || bytes > slot_bytes - field.offset) {
    return "ends past the slot's " + std::to_string(slot_bytes) + " bytes";
  }
  return {};
}

std::string Fault(const Opened& opened, bool inline_delivery) {
  if (opened.fields.empty()) return "a batch without fields";
  if (opened.fields.size() > kMaxFields) return "more than 1024 fields";
  for (const Field& field : opened.fields) {
    const std::string fault = FieldFault(field, opened.slot_bytes);
    if (!fault.empty()) return "field '" + Printable(field.name) + "' that " + fault;
    if (field.shape[0] != opened.fields[0].shape[0]) {
      return "field '" + Printable(field.name) + "' with a capacity unlike the others'";
    }
  }
  if (inline_delivery) return {};
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (opened.slot_count == 0) return "a segment without slots";
  if (opened.slot_bytes == 0 || opened.slot_bytes % page != 0) {
    return "slots of " + std::to_string(opened.slot_bytes) + " bytes, no multiple of the page size";
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(opened.slot_bytes, uint64_t{opened.slot_count}, &bytes) ||
      bytes != opened.segment_bytes || bytes > INT64_MAX) {
    return "a segment of " + std::to_string(opened.segment_bytes) + " bytes for " +
           std::to_string(opened.slot_count) + " slots of " + std::to_string(opened.slot_bytes);
  }
  if (opened.segment_token.size() != 16) return "a segment token that has not 16 bytes";
  return {};
}

}  // namespace

Status Layout::Check(const Opened& opened, bool inline_delivery) {
  const std::string fault = Fault(opened, inline_delivery);
  if (fault.empty()) return Ok();
  return Error(LOADERD_INTERNAL, "the daemon announced " + fault);
}

bool Layout::Same(const Opened& one, const Opened& other) {
  const auto facts = [](const Opened& opened) {
    return std::tie(opened.slot_bytes, opened.num_samples, opened.num_batches, opened.epoch_samples,
                    opened.job_fingerprint, opened.order_fingerprint);
  };
  const auto alike = [](const Field& a, const Field& b) {
    return std::tie(a.name, a.dtype, a.shape, a.stride_bytes, a.offset) ==
           std::tie(b.name, b.dtype, b.shape, b.stride_bytes, b.offset);
  };
  return facts(one) == facts(other) && std::ranges::equal(one.fields, other.fields, alike);
}

Layout::Layout(Opened opened, bool inline_delivery, std::string socket)
    : opened_(std::move(opened)), socket_(std::move(socket)) {
  capacity_ = static_cast<uint32_t>(opened_.fields[0].shape[0]);
  for (const Field& field : opened_.fields) {
    fields_.push_back({field.name.c_str(), field.dtype.c_str(),
                       static_cast<uint32_t>(field.shape.size()), field.shape.data(),
                       field.stride_bytes.data(), field.offset});
  }
  facts_ = {
      .session = opened_.session.c_str(),
      .socket = socket_.c_str(),
      .num_fields = static_cast<uint32_t>(fields_.size()),
      .fields = fields_.data(),
      .num_samples = opened_.num_samples,
      .num_batches = opened_.num_batches,
      .epoch_samples = opened_.epoch_samples,
      .slot_bytes = opened_.slot_bytes,
      .slot_count = opened_.slot_count,
      .delivery = inline_delivery ? LOADERD_INLINE : LOADERD_MAPPED,
      .job_fingerprint = opened_.job_fingerprint.c_str(),
      .plain_loop_copies = opened_.plain_loop_copies ? 1 : 0,
      .order_fingerprint = opened_.order_fingerprint.c_str(),
  };
}

uint64_t Layout::BytesOf(uint32_t count) const {
  if (count == 0) return 0;
  uint64_t end = 0;
  for (const loaderd_field& field : fields_) {
    end = std::max(end, field.offset + count * static_cast<uint64_t>(field.stride_bytes[0]));
  }
  return end;
}

}  // namespace loaderd::client
