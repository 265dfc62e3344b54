// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/cat_command.h"

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/array_file.h"
#include "client/ctl/contact_sheet.h"
#include "client/ctl/format.h"
#include "client/ctl/interrupt.h"
#include "client/ctl/json.h"
#include "client/ctl/reader.h"

namespace loaderd::ctl {
namespace {

struct Written {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string file;
};

absl::Status MakeJob(const CatOptions& options, v1::JobSpec& job) {
  *job.mutable_dataset() = DatasetOf(options.data);
  if (options.transform.empty()) {
    job.add_transform()->mutable_resize()->add_size(options.size);
    job.add_transform()->mutable_center_crop()->add_size(options.size);
  } else if (absl::Status status = SetTransform(options.transform, job); !status.ok()) {
    return status;
  }
  job.set_prefetch_factor(1);
  job.set_batch_size(options.batch);
  if (!options.indices.empty()) {
    job.set_batch_size(static_cast<int64_t>(options.indices.size()));
    job.mutable_order()->set_kind(v1::ORDER_KIND_EXPLICIT);
  }
  return absl::OkStatus();
}

const std::byte* FieldData(const loaderd_batch& batch, const loaderd_field& field) {
  return static_cast<const std::byte*>(batch.data) + field.offset;
}

absl::Status WriteArrays(const std::string& folder, const loaderd_opened& opened,
                         const loaderd_batch& batch, std::vector<Written>& files) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return absl::InternalError(absl::StrCat("create folder ", folder, ": ", error.message()));
  for (const loaderd_field& field : std::span(opened.fields, opened.num_fields)) {
    std::vector<int64_t> shape(field.shape, field.shape + field.ndim);
    shape[0] = batch.count;
    const std::string path =
        (std::filesystem::path(folder) / absl::StrCat(field.name, ".npy")).string();
    const auto bytes = static_cast<size_t>(field.stride_bytes[0]) * batch.count;
    absl::Status status = WriteNpy(path, field.dtype, shape, {FieldData(batch, field), bytes});
    if (!status.ok()) return status;
    files.push_back({field.name, field.dtype, shape, path});
  }
  return absl::OkStatus();
}

absl::Status WriteSheet(const std::string& path, const loaderd_opened& opened,
                        const loaderd_batch& batch) {
  for (const loaderd_field& field : std::span(opened.fields, opened.num_fields)) {
    if (std::string_view(field.dtype) != "uint8" || field.ndim != 4) continue;
    Images images;
    absl::Status status =
        ImagesOf(reinterpret_cast<const uint8_t*>(FieldData(batch, field)), batch.count,
                 {field.shape, field.ndim}, {field.stride_bytes, field.ndim}, images);
    return status.ok() ? WriteContactSheet(path, images) : status;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--png ", path,
      ": a contact sheet wants uint8 images; leave to_tensor and normalize out of --transform"));
}

void Report(const Shared& shared, const CatOptions& options, const loaderd_opened& opened,
            const loaderd_batch& batch, const std::vector<Written>& files) {
  for (const loaderd_bad_sample& bad : std::span(batch.bad, batch.bad_count)) {
    std::fprintf(stderr, "loaderctl: bad sample %lld: %s\n", static_cast<long long>(bad.index),
                 ForTerminal(bad.reason).c_str());
  }
  if (shared.json) {
    std::string fields;
    for (const Written& file : files) {
      fields += fields.empty() ? "" : ",";
      fields += JsonObject()
                    .Add("name", file.name)
                    .Add("dtype", file.dtype)
                    .AddJson("shape", "[" + absl::StrJoin(file.shape, ",") + "]")
                    .Add("file", file.file)
                    .text();
    }
    JsonObject result;
    result.Add("count", batch.count)
        .Add("bad", batch.bad_count)
        .Add("num_samples", opened.num_samples);
    result.AddJson("fields", "[" + fields + "]");
    result.AddJson("png", options.png.empty() ? "null" : JsonQuote(options.png));
    std::printf("%s\n", result.text().c_str());
    return;
  }
  std::printf("%s of %s samples of %s\n", FormatCount(batch.count).c_str(),
              FormatCount(opened.num_samples).c_str(), ForTerminal(options.data).c_str());
  for (const Written& file : files) {
    std::printf("  %s: %s, %s (%s)%s\n", file.file.c_str(), file.name.c_str(), file.dtype.c_str(),
                absl::StrJoin(file.shape, ", ").c_str(),
                file.dtype == "bfloat16" ? ", its bits as uint16" : "");
  }
  if (!options.png.empty()) std::printf("  %s: contact sheet\n", options.png.c_str());
}

absl::Status Write(const Shared& shared, const CatOptions& options) {
  v1::JobSpec job;
  if (absl::Status status = MakeJob(options, job); !status.ok()) return status;
  absl::StatusOr<Reader> reader = Reader::Open(job, shared.socket);
  if (!reader.ok()) return reader.status();
  if (absl::Status status = reader->StartEpoch(0, false); !status.ok()) return status;
  if (!options.indices.empty()) {
    if (absl::Status status = reader->SendOnly(options.indices); !status.ok()) return status;
  }
  absl::StatusOr<const loaderd_batch*> batch = reader->Next(-1);
  if (!batch.ok()) return batch.status();
  if (*batch == nullptr)
    return absl::NotFoundError(absl::StrCat(options.data, ": the dataset has no batch"));

  std::vector<Written> files;
  absl::Status status = absl::OkStatus();
  if (!options.out.empty()) status = WriteArrays(options.out, reader->opened(), **batch, files);
  if (status.ok() && !options.png.empty())
    status = WriteSheet(options.png, reader->opened(), **batch);
  if (status.ok()) Report(shared, options, reader->opened(), **batch, files);
  loaderd_release(*batch);
  return status;
}

}  // namespace

int CatCommand(const Shared& shared, const CatOptions& options) {
  CatchInterrupts();
  if (options.out.empty() && options.png.empty()) {
    return Fail(absl::InvalidArgumentError(
        "cat: say where to: --out FOLDER for .npy files, --png FILE for a contact sheet"));
  }
  const absl::Status status = Write(shared, options);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace loaderd::ctl
