// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/reader.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/ctl/interrupt.h"

namespace loaderd::ctl {
namespace {

// The library's codes up to 16 are gRPC's, as abseil's are.
absl::Status FromClient(loaderd_code code) {
  if (code == LOADERD_OK) return absl::OkStatus();
  if (code == LOADERD_INTERRUPTED || (code == LOADERD_CANCELLED && Interrupted())) {
    return absl::CancelledError("interrupted");
  }
  const auto status = code <= LOADERD_UNAUTHENTICATED ? static_cast<absl::StatusCode>(code)
                                                      : absl::StatusCode::kInternal;
  return absl::Status(status, loaderd_error());
}

int KeepWaiting(void*, const char*) { return Interrupted() ? 1 : 0; }

void TellLine(const char* line) { std::fprintf(stderr, "loaderctl: %s\n", line); }

}  // namespace

v1::DatasetSpec DatasetOf(const std::string& data) {
  v1::DatasetSpec spec;
  std::error_code ignored;
  if (data.find('/') == std::string::npos && !std::filesystem::is_directory(data, ignored)) {
    spec.set_name(data);
    return spec;
  }
  const std::string path = std::filesystem::absolute(data, ignored).lexically_normal().string();
  const bool is_ascii = std::all_of(path.begin(), path.end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  // The name may be in any encoding, and a protobuf string may not.
  is_ascii ? spec.mutable_image_folder()->set_path(path)
           : spec.mutable_image_folder()->set_path_bytes(path);
  return spec;
}

absl::Status SetTransform(const std::string& json, v1::JobSpec& job) {
  v1::JobSpec parsed;
  const auto status =
      google::protobuf::util::JsonStringToMessage("{\"transform\": " + json + "}", &parsed);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--transform: ", std::string(status.message()),
                     "; it wants a JSON array of steps, e.g. [{\"resize\": {\"size\": [256]}}]"));
  }
  *job.mutable_transform() = parsed.transform();
  return absl::OkStatus();
}

absl::StatusOr<Reader> Reader::Open(const v1::JobSpec& job, const std::string& socket) {
  std::string json;
  google::protobuf::util::JsonPrintOptions names;
  names.preserve_proto_field_names = true;
  if (const auto status = google::protobuf::util::MessageToJsonString(job, &json, names);
      !status.ok()) {
    return absl::InternalError(std::string(status.message()));
  }
  loaderd_open_options options = {};
  options.struct_size = sizeof(options);
  options.socket = socket.empty() ? nullptr : socket.c_str();
  options.timeout_ms = 10'000;
  options.delivery = LOADERD_MAPPED_OR_INLINE;
  options.client = "loaderctl";
  options.log = TellLine;
  options.waiting = KeepWaiting;
  loaderd_session* session = nullptr;
  loaderd_code code = LOADERD_INTERRUPTED;
  while (code == LOADERD_INTERRUPTED && !Interrupted())
    code = loaderd_open(json.c_str(), &options, &session);
  if (code != LOADERD_OK) return FromClient(code);
  return Reader(session);
}

Reader::Reader(Reader&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}

Reader::~Reader() { loaderd_close(session_); }

absl::Status Reader::StartEpoch(uint64_t epoch, bool goes_on) {
  return FromClient(loaderd_start_epoch(session_, epoch, 0, goes_on ? 1 : 0));
}

absl::Status Reader::SendOnly(const std::vector<int64_t>& indices) {
  const loaderd_code code = loaderd_send_indices(session_, 0, indices.data(), indices.size());
  if (code != LOADERD_OK) return FromClient(code);
  return FromClient(loaderd_end_indices(session_));
}

absl::StatusOr<const loaderd_batch*> Reader::Next(int64_t timeout_ms) {
  const loaderd_batch* batch = nullptr;
  loaderd_code code = LOADERD_INTERRUPTED;
  while (code == LOADERD_INTERRUPTED && !Interrupted())
    code = loaderd_next(session_, timeout_ms, &batch);
  if (code == LOADERD_END_OF_EPOCH) return nullptr;
  if (code != LOADERD_OK) return FromClient(code);
  return batch;
}

}  // namespace loaderd::ctl
