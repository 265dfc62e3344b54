// SPDX-License-Identifier: Apache-2.0
// With transform_steps.cc the only place that reads a JobSpec: each field is checked here once, and
// nowhere else.
#include "server/plan/job.h"

#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "loaderd/v1/job.pb.h"
#include "server/plan/batch_steps.h"
#include "server/plan/fields.h"
#include "server/plan/json_error.h"
#include "server/plan/transform_steps.h"

namespace loaderd::plan {
namespace {

constexpr size_t kMaxJsonBytes = 1 << 20;
constexpr size_t kMaxPathBytes = 4095;
constexpr size_t kMaxNameBytes = 64;

StatusOr<Order> ParseOrder(const v1::OrderSpec& spec) {
  Order out;
  out.seed = spec.seed();
  ASSIGN_OR_RETURN(out.kind, (Pick<v1::OrderKind, OrderKind>(
                                 "order.kind", spec.kind(), OrderKind::kSequential,
                                 {{v1::ORDER_KIND_SEQUENTIAL, OrderKind::kSequential},
                                  {v1::ORDER_KIND_TORCH_SHUFFLE, OrderKind::kTorchShuffle},
                                  {v1::ORDER_KIND_EXPLICIT, OrderKind::kExplicit}})));
  ASSIGN_OR_RETURN(out.shard,
                   (Pick<v1::ShardRule, ShardRule>("order.shard", spec.shard(), ShardRule::kPad,
                                                   {{v1::SHARD_RULE_PAD, ShardRule::kPad},
                                                    {v1::SHARD_RULE_DROP, ShardRule::kDrop},
                                                    {v1::SHARD_RULE_UNEVEN, ShardRule::kUneven}})));
  if (spec.has_world_size()) {
    ASSIGN_OR_RETURN(out.world_size, InRange("order.world_size", spec.world_size(), 1, 65536));
  }
  ASSIGN_OR_RETURN(out.rank, InRange("order.rank", spec.rank(), 0, int64_t{out.world_size} - 1));
  if (out.kind == OrderKind::kExplicit && out.world_size != 1) {
    return Invalid("order.world_size",
                   absl::StrCat("must be 1 with ORDER_KIND_EXPLICIT, is ", out.world_size,
                                "; the indices that the client sends are this rank's already"));
  }
  return out;
}

Status CheckPath(const std::string& field, const std::string& path) {
  if (path.empty() || path.size() > kMaxPathBytes) {
    return Invalid(field,
                   absl::StrCat("must have 1 to ", kMaxPathBytes, " bytes, has ", path.size()));
  }
  if (path.find('\0') != path.npos) return Invalid(field, "must not hold a NUL byte");
  if (path[0] != '/') {
    return Invalid(field, absl::StrCat("must be absolute, is \"", Printable(path), "\""));
  }
  return absl::OkStatus();
}

Status CheckName(const std::string& field, std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (!name.empty() && name.size() <= kMaxNameBytes &&
      std::all_of(name.begin(), name.end(), allowed)) {
    return absl::OkStatus();
  }
  return Invalid(field, absl::StrCat("must be 1 to ", kMaxNameBytes, " of [A-Za-z0-9._-], is \"",
                                     Printable(name.substr(0, kMaxNameBytes)), "\""));
}

// A field that this daemon does not know would be lost in silence.
Status CheckNoUnknown(const std::string& path, const google::protobuf::Message& message) {
  const auto* reflection = message.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(message);
  if (unknown.field_count() > 0) {
    return Invalid(
        path.empty() ? "job" : path,
        absl::StrCat("field number ", unknown.field(0).number(),
                     " is not known here; there are: ", FieldNames(*message.GetDescriptor())));
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() == nullptr) continue;
    const std::string sub = path.empty() ? field->name() : Sub(path, field->name());
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(CheckNoUnknown(sub, reflection->GetMessage(message, field)));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      RETURN_IF_ERROR(
          CheckNoUnknown(At(sub, i), reflection->GetRepeatedMessage(message, field, i)));
    }
  }
  return absl::OkStatus();
}

Status ParseFolderRules(const v1::ImageFolderSpec& folder, DatasetSpec& out) {
  ASSIGN_OR_RETURN(out.hidden,
                   (Pick<v1::HiddenRule, HiddenRule>(
                       "dataset.image_folder.hidden", folder.hidden(), HiddenRule::kTorchvision,
                       {{v1::HIDDEN_RULE_TORCHVISION, HiddenRule::kTorchvision},
                        {v1::HIDDEN_RULE_SKIP, HiddenRule::kSkip}})));
  for (int i = 0; i < folder.class_to_idx_size(); ++i) {
    const v1::ClassNumber& entry = folder.class_to_idx(i);
    const std::string& name = entry.name().empty() ? entry.name_bytes() : entry.name();
    if (name.empty() || (!entry.name().empty() && !entry.name_bytes().empty())) {
      return Invalid(At("dataset.image_folder.class_to_idx", i),
                     "must have either name or name_bytes");
    }
    out.class_to_idx.emplace_back(name, entry.number());
  }
  return absl::OkStatus();
}

// The dataset, and in a recipe without steps how its images are read.
StatusOr<std::pair<DatasetSpec, RecipeSpec>> ParseDatasetAndReading(const v1::DatasetSpec& spec) {
  std::pair<DatasetSpec, RecipeSpec> out;
  switch (spec.kind_case()) {
    case v1::DatasetSpec::kImageFolder: {
      const v1::ImageFolderSpec& folder = spec.image_folder();
      const bool bytes = !folder.path_bytes().empty();
      if (bytes && !folder.path().empty()) {
        return Invalid("dataset.image_folder.path_bytes", "must not stand beside path");
      }
      out.first.image_folder = bytes ? folder.path_bytes() : folder.path();
      RETURN_IF_ERROR(
          CheckPath(bytes ? "dataset.image_folder.path_bytes" : "dataset.image_folder.path",
                    out.first.image_folder));
      ASSIGN_OR_RETURN(
          out.second.mode,
          (Pick<v1::ImageMode, ImageMode>(
              "dataset.image_folder.mode", folder.mode(), ImageMode::kRgb,
              {{v1::IMAGE_MODE_RGB, ImageMode::kRgb}, {v1::IMAGE_MODE_L, ImageMode::kL}})));
      RETURN_IF_ERROR(ParseFolderRules(folder, out.first));
      out.second.exif_transpose = folder.exif_transpose();
      ASSIGN_OR_RETURN(
          out.second.wide,
          (Pick<v1::WideMode, WideMode>(
              "dataset.image_folder.wide", folder.wide(), WideMode::kScale,
              {{v1::WIDE_MODE_SCALE, WideMode::kScale}, {v1::WIDE_MODE_CLIP, WideMode::kClip}})));
      return out;
    }
    case v1::DatasetSpec::kName: {
      out.first.name = spec.name();
      RETURN_IF_ERROR(CheckName("dataset.name", out.first.name));
      return out;
    }
    case v1::DatasetSpec::KIND_NOT_SET: break;
  }
  return Invalid("dataset",
                 absl::StrCat("is required: one of ", FieldNames(*v1::DatasetSpec::descriptor())));
}

Status FromJson(std::string_view json, const std::string& prefix,
                google::protobuf::Message& message) {
  if (json.size() > kMaxJsonBytes) {
    return Invalid(
        prefix.empty() ? "job" : prefix,
        absl::StrCat("its JSON must have at most ", kMaxJsonBytes, " bytes, has ", json.size()));
  }
  const auto status =
      google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &message);
  if (status.ok()) return absl::OkStatus();
  const auto text = status.message();
  return JsonError(*message.GetDescriptor(), prefix, {text.data(), text.size()});
}

}  // namespace

StatusOr<Job> ParseJob(const v1::JobSpec& spec) {
  RETURN_IF_ERROR(CheckNoUnknown("", spec));
  Job job;
  ASSIGN_OR_RETURN(auto dataset, ParseDatasetAndReading(spec.dataset()));
  job.dataset = std::move(dataset.first);
  job.recipe = std::move(dataset.second);
  ASSIGN_OR_RETURN(job.recipe.reference, (Pick<v1::Reference, Reference>(
                                             "reference", spec.reference(), Reference::kPillow13,
                                             {{v1::REFERENCE_PILLOW13, Reference::kPillow13},
                                              {v1::REFERENCE_PILLOW12, Reference::kPillow12}})));
  ASSIGN_OR_RETURN(job.recipe.fidelity,
                   (Pick<v1::Fidelity, Fidelity>("fidelity", spec.fidelity(), Fidelity::kExact,
                                                 {{v1::FIDELITY_EXACT, Fidelity::kExact},
                                                  {v1::FIDELITY_FAST, Fidelity::kFast}})));
  ASSIGN_OR_RETURN(job.recipe.steps, ParseSteps("transform", spec.transform()));
  ASSIGN_OR_RETURN(job.order, ParseOrder(spec.order()));
  if (spec.has_batch_size()) {
    ASSIGN_OR_RETURN(job.batch_size, InRange("batch_size", spec.batch_size(), 1, 65536));
  }
  job.drop_last = spec.drop_last();
  if (spec.has_prefetch_factor()) {
    ASSIGN_OR_RETURN(job.prefetch_factor,
                     InRange("prefetch_factor", spec.prefetch_factor(), 1, 1024));
  }
  ASSIGN_OR_RETURN(job.on_bad_sample,
                   (Pick<v1::BadSamplePolicy, BadSamplePolicy>(
                       "on_bad_sample", spec.on_bad_sample(), BadSamplePolicy::kFail,
                       {{v1::BAD_SAMPLE_POLICY_FAIL, BadSamplePolicy::kFail},
                        {v1::BAD_SAMPLE_POLICY_SKIP, BadSamplePolicy::kSkip},
                        {v1::BAD_SAMPLE_POLICY_SUBSTITUTE, BadSamplePolicy::kSubstitute}})));
  if (spec.has_batch_transform()) {
    ASSIGN_OR_RETURN(job.batch_transform,
                     ParseBatchStep("batch_transform", spec.batch_transform()));
  }
  return job;
}

StatusOr<Job> ParseJobJson(std::string_view json) {
  v1::JobSpec spec;
  RETURN_IF_ERROR(FromJson(json, "", spec));
  return ParseJob(spec);
}

StatusOr<DatasetSpec> ParseDataset(const v1::DatasetSpec& spec) {
  RETURN_IF_ERROR(CheckNoUnknown("dataset", spec));
  ASSIGN_OR_RETURN(auto dataset, ParseDatasetAndReading(spec));
  return std::move(dataset.first);
}

StatusOr<DatasetSpec> ParseDatasetJson(std::string_view json) {
  v1::DatasetSpec spec;
  RETURN_IF_ERROR(FromJson(json, "dataset", spec));
  return ParseDataset(spec);
}

}  // namespace loaderd::plan
