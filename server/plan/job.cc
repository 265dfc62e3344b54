// SPDX-License-Identifier: Apache-2.0
// The only place that reads a JobSpec: each field is checked here once, and nowhere else.
#include "server/plan/job.h"

#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "loaderd/v1/job.pb.h"
#include "server/plan/json_error.h"

namespace loaderd::plan {
namespace {

using google::protobuf::RepeatedField;

constexpr size_t kMaxJsonBytes = 1 << 20;
constexpr int kMaxSteps = 64;
constexpr int64_t kMaxEdge = 65535;
constexpr size_t kMaxPathBytes = 4095;
constexpr size_t kMaxNameBytes = 64;
constexpr int kMaxChannels = 4;
constexpr double kMaxScale = 100;
constexpr double kMaxRatio = 10000;

Status Invalid(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

std::string Sub(const std::string& path, const std::string& field) {
  return absl::StrCat(path, ".", field);
}
std::string At(const std::string& path, int i) { return absl::StrCat(path, "[", i, "]"); }

StatusOr<int> InRange(const std::string& path, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return static_cast<int>(value);
  return Invalid(path, absl::StrCat("must be ", least, " to ", most, ", is ", value));
}

Status CheckRange(const std::string& path, double value, double least, double most) {
  if (!std::isfinite(value)) return Invalid(path, absl::StrCat("must be finite, is ", value));
  if (value >= least && value <= most) return absl::OkStatus();
  return Invalid(path, absl::StrCat("must be ", least, " to ", most, ", is ", value));
}

// Proto's enums are open: any number may stand in a message.
template <typename Proto, typename Ours>
StatusOr<Ours> Pick(const std::string& path, Proto value, Ours unset,
                    std::initializer_list<std::pair<Proto, Ours>> table) {
  if (value == Proto{}) return unset;
  for (const auto& [from, to] : table) {
    if (from == value) return to;
  }
  std::string names;
  const auto* type = google::protobuf::GetEnumDescriptor<Proto>();
  for (const auto& entry : table) {
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    type->FindValueByNumber(entry.first)->name());
  }
  return Invalid(path, absl::StrCat("must be one of ", names, ", is ", static_cast<int>(value)));
}

StatusOr<Filter> ParseFilter(const std::string& path, v1::Interpolation value) {
  return Pick<v1::Interpolation, Filter>(Sub(path, "interpolation"), value, Filter::kBilinear,
                                         {{v1::INTERPOLATION_NEAREST, Filter::kNearest},
                                          {v1::INTERPOLATION_BILINEAR, Filter::kBilinear},
                                          {v1::INTERPOLATION_BICUBIC, Filter::kBicubic},
                                          {v1::INTERPOLATION_BOX, Filter::kBox},
                                          {v1::INTERPOLATION_HAMMING, Filter::kHamming},
                                          {v1::INTERPOLATION_LANCZOS, Filter::kLanczos}});
}

// [edge] or [height, width]; the edge alone has width 0.
StatusOr<Size> ParseSize(const std::string& step_path, const RepeatedField<int64_t>& size) {
  const std::string path = Sub(step_path, "size");
  if (size.size() != 1 && size.size() != 2) {
    return Invalid(
        path, absl::StrCat("must be [edge] or [height, width], has ", size.size(), " numbers"));
  }
  Size out;
  ASSIGN_OR_RETURN(out.height, InRange(At(path, 0), size[0], 1, kMaxEdge));
  if (size.size() == 2) {
    ASSIGN_OR_RETURN(out.width, InRange(At(path, 1), size[1], 1, kMaxEdge));
  }
  return out;
}

StatusOr<Size> ParseBox(const std::string& step_path, const RepeatedField<int64_t>& size) {
  ASSIGN_OR_RETURN(Size out, ParseSize(step_path, size));
  if (out.width == 0) out.width = out.height;
  return out;
}

Status ParseInterval(const std::string& path, const RepeatedField<double>& values, double least,
                     double most, std::array<double, 2>& out) {
  if (values.empty()) return absl::OkStatus();
  if (values.size() != 2) {
    return Invalid(path, absl::StrCat("must be [min, max], has ", values.size(), " numbers"));
  }
  for (int i = 0; i < 2; ++i) {
    RETURN_IF_ERROR(CheckRange(At(path, i), values[i], least, most));
    out[i] = values[i];
  }
  if (out[0] > out[1]) {
    return Invalid(path, absl::StrCat("min must be at most max, is [", out[0], ", ", out[1], "]"));
  }
  return absl::OkStatus();
}

// Normalize computes in float32, so a value must also be good there.
StatusOr<std::vector<double>> ParseChannels(const std::string& path,
                                            const RepeatedField<double>& values, bool divisor) {
  if (values.empty() || values.size() > kMaxChannels) {
    return Invalid(path, absl::StrCat("must have one number a channel, or one for all, and 1 to ",
                                      kMaxChannels, ", has ", values.size()));
  }
  constexpr double kMost = std::numeric_limits<float>::max();
  for (int i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(CheckRange(At(path, i), values[i], -kMost, kMost));
    if (divisor && static_cast<float>(values[i]) == 0) {
      return Invalid(At(path, i), absl::StrCat("must not be 0 as float32, is ", values[i]));
    }
  }
  return std::vector<double>(values.begin(), values.end());
}

StatusOr<Step> ParseResize(const std::string& path, const v1::Resize& spec) {
  step::Resize out;
  ASSIGN_OR_RETURN(const Size size, ParseSize(path, spec.size()));
  if (size.width == 0) {
    out.size = size.height;
  } else {
    out.size = size;
  }
  if (spec.has_max_size()) {
    const std::string max_path = Sub(path, "max_size");
    if (size.width != 0) return Invalid(max_path, "goes only with a size of one number");
    ASSIGN_OR_RETURN(out.max_size, InRange(max_path, spec.max_size(), 1, kMaxEdge));
    if (*out.max_size <= size.height) {
      return Invalid(max_path, absl::StrCat("must be greater than size, which is ", size.height,
                                            ", is ", *out.max_size));
    }
  }
  ASSIGN_OR_RETURN(out.filter, ParseFilter(path, spec.interpolation()));
  return out;
}

StatusOr<Step> ParseRandomResizedCrop(const std::string& path, const v1::RandomResizedCrop& spec) {
  step::RandomResizedCrop out;
  ASSIGN_OR_RETURN(out.size, ParseBox(path, spec.size()));
  RETURN_IF_ERROR(ParseInterval(Sub(path, "scale"), spec.scale(), 0, kMaxScale, out.scale));
  if (out.scale[1] == 0) return Invalid(At(Sub(path, "scale"), 1), "must be greater than 0, is 0");
  RETURN_IF_ERROR(
      ParseInterval(Sub(path, "ratio"), spec.ratio(), 1 / kMaxRatio, kMaxRatio, out.ratio));
  ASSIGN_OR_RETURN(out.filter, ParseFilter(path, spec.interpolation()));
  return out;
}

StatusOr<Step> ParseConvert(const std::string& path, const v1::ConvertImageDtype& spec) {
  for (const DType dtype : {DType::kUint8, DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    if (DTypeName(dtype) == spec.dtype()) return step::ConvertImageDtype{.dtype = dtype};
  }
  return Invalid(
      Sub(path, "dtype"),
      absl::StrCat("must be one of uint8, float32, float16, bfloat16, is \"",
                   Printable(std::string_view(spec.dtype()).substr(0, kMaxNameBytes)), "\""));
}

StatusOr<Step> ParseStep(const std::string& step_path, const v1::TransformStep& spec) {
  const auto field = static_cast<int>(spec.step_case());
  if (field == v1::TransformStep::STEP_NOT_SET) {
    return Invalid(step_path, absl::StrCat("names no transform; there are: ",
                                           FieldNames(*v1::TransformStep::descriptor())));
  }
  const std::string path =
      Sub(step_path, v1::TransformStep::descriptor()->FindFieldByNumber(field)->name());
  switch (spec.step_case()) {
    case v1::TransformStep::kResize: return ParseResize(path, spec.resize());
    case v1::TransformStep::kCenterCrop: {
      ASSIGN_OR_RETURN(const Size size, ParseBox(path, spec.center_crop().size()));
      return step::CenterCrop{.size = size};
    }
    case v1::TransformStep::kRandomResizedCrop:
      return ParseRandomResizedCrop(path, spec.random_resized_crop());
    case v1::TransformStep::kRandomHorizontalFlip: {
      step::RandomHorizontalFlip out;
      if (spec.random_horizontal_flip().has_p()) out.p = spec.random_horizontal_flip().p();
      RETURN_IF_ERROR(CheckRange(Sub(path, "p"), out.p, 0, 1));
      return out;
    }
    case v1::TransformStep::kGrayscale: {
      step::Grayscale out;
      if (spec.grayscale().has_num_output_channels()) {
        const int64_t channels = spec.grayscale().num_output_channels();
        if (channels != 1 && channels != 3) {
          return Invalid(Sub(path, "num_output_channels"),
                         absl::StrCat("must be 1 or 3, is ", channels));
        }
        out.channels = static_cast<int>(channels);
      }
      return out;
    }
    case v1::TransformStep::kPilToTensor: return step::PilToTensor{};
    case v1::TransformStep::kToTensor: return step::ToTensor{};
    case v1::TransformStep::kConvertImageDtype:
      return ParseConvert(path, spec.convert_image_dtype());
    case v1::TransformStep::kNormalize: {
      step::Normalize out;
      ASSIGN_OR_RETURN(out.mean, ParseChannels(Sub(path, "mean"), spec.normalize().mean(), false));
      ASSIGN_OR_RETURN(out.std, ParseChannels(Sub(path, "std"), spec.normalize().std(), true));
      return out;
    }
    case v1::TransformStep::STEP_NOT_SET: break;
  }
  return Invalid(path, "is not supported");
}

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
  if (spec.transform_size() > kMaxSteps) {
    return Invalid("transform", absl::StrCat("must have at most ", kMaxSteps, " steps, has ",
                                             spec.transform_size()));
  }
  for (int i = 0; i < spec.transform_size(); ++i) {
    ASSIGN_OR_RETURN(Step step, ParseStep(At("transform", i), spec.transform(i)));
    job.recipe.steps.push_back(std::move(step));
  }
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
