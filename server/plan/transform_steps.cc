// SPDX-License-Identifier: Apache-2.0
#include "server/plan/transform_steps.h"

#include "absl/strings/str_cat.h"
#include "loaderd/v1/job.pb.h"
#include "server/plan/augment_steps.h"
#include "server/plan/fields.h"
#include "server/plan/json_error.h"
#include "server/plan/step_fields.h"

namespace loaderd::plan {
namespace {

constexpr int kMaxSteps = 64;       // in one list
constexpr int kMaxAllSteps = 1024;  // with those that steps hold
constexpr int kMaxDepth = 8;        // of steps that hold steps
constexpr size_t kMaxShown = 64;    // bytes of a name in an error
constexpr double kMaxScale = 100;

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
                   Printable(std::string_view(spec.dtype()).substr(0, kMaxShown)), "\""));
}

template <typename Out, typename Spec>
StatusOr<Step> WithP(const std::string& path, const Spec& spec) {
  Out out;
  ASSIGN_OR_RETURN(out.p, ParseP(path, spec, out.p));
  return out;
}

// Reads steps and what they hold, and counts them.
class StepReader {
 public:
  StatusOr<std::vector<Step>> ReadAll(
      const std::string& path, const google::protobuf::RepeatedPtrField<v1::TransformStep>& specs) {
    if (specs.size() > kMaxSteps) {
      return Invalid(path,
                     absl::StrCat("must have at most ", kMaxSteps, " steps, has ", specs.size()));
    }
    all_ += specs.size();
    if (all_ > kMaxAllSteps) {
      return Invalid(path, absl::StrCat("a job must have at most ", kMaxAllSteps,
                                        " steps in all, those that others hold among them"));
    }
    std::vector<Step> steps;
    for (int i = 0; i < specs.size(); ++i) {
      ASSIGN_OR_RETURN(Step step, Read(At(path, i), specs[i]));
      steps.push_back(std::move(step));
    }
    return steps;
  }

 private:
  StatusOr<Step> Read(const std::string& step_path, const v1::TransformStep& spec);

  StatusOr<std::vector<step::Nested>> Held(
      const std::string& path, const google::protobuf::RepeatedPtrField<v1::TransformStep>& specs) {
    if (depth_ == kMaxDepth) {
      return Invalid(path, absl::StrCat("steps may hold steps at most ", kMaxDepth, " deep"));
    }
    ++depth_;
    ASSIGN_OR_RETURN(std::vector<Step> steps, ReadAll(Sub(path, "transforms"), specs));
    --depth_;
    std::vector<step::Nested> held;
    for (Step& step : steps) held.push_back({.step = std::move(step)});
    return held;
  }

  int all_ = 0;
  int depth_ = 0;
};

StatusOr<Step> StepReader::Read(const std::string& step_path, const v1::TransformStep& spec) {
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
    case v1::TransformStep::kRandomHorizontalFlip:
      return WithP<step::RandomHorizontalFlip>(path, spec.random_horizontal_flip());
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
    case v1::TransformStep::kPad: return ParsePad(path, spec.pad());
    case v1::TransformStep::kRandomCrop: return ParseRandomCrop(path, spec.random_crop());
    case v1::TransformStep::kRandomVerticalFlip:
      return WithP<step::RandomVerticalFlip>(path, spec.random_vertical_flip());
    case v1::TransformStep::kRandomRotation: return ParseRotation(path, spec.random_rotation());
    case v1::TransformStep::kRandomAffine: return ParseAffine(path, spec.random_affine());
    case v1::TransformStep::kRandomPerspective:
      return ParsePerspective(path, spec.random_perspective());
    case v1::TransformStep::kColorJitter: return ParseJitter(path, spec.color_jitter());
    case v1::TransformStep::kRandomGrayscale:
      return WithP<step::RandomGrayscale>(path, spec.random_grayscale());
    case v1::TransformStep::kGaussianBlur: return ParseBlur(path, spec.gaussian_blur());
    case v1::TransformStep::kRandomErasing: return ParseErasing(path, spec.random_erasing());
    case v1::TransformStep::kRandAugment: return ParseRandAugment(path, spec.rand_augment());
    case v1::TransformStep::kTrivialAugmentWide:
      return ParseTrivialAugment(path, spec.trivial_augment_wide());
    case v1::TransformStep::kAutoAugment: return ParseAutoAugment(path, spec.auto_augment());
    case v1::TransformStep::kRandomInvert:
      return WithP<step::RandomInvert>(path, spec.random_invert());
    case v1::TransformStep::kRandomPosterize: return ParsePosterize(path, spec.random_posterize());
    case v1::TransformStep::kRandomSolarize: return ParseSolarize(path, spec.random_solarize());
    case v1::TransformStep::kRandomAdjustSharpness:
      return ParseSharpness(path, spec.random_adjust_sharpness());
    case v1::TransformStep::kRandomAutocontrast:
      return WithP<step::RandomAutocontrast>(path, spec.random_autocontrast());
    case v1::TransformStep::kRandomEqualize:
      return WithP<step::RandomEqualize>(path, spec.random_equalize());
    case v1::TransformStep::kRandomApply: {
      step::RandomApply out;
      ASSIGN_OR_RETURN(out.p, ParseP(path, spec.random_apply(), out.p));
      ASSIGN_OR_RETURN(out.transforms, Held(path, spec.random_apply().transforms()));
      return out;
    }
    case v1::TransformStep::kRandomChoice: {
      step::RandomChoice out;
      ASSIGN_OR_RETURN(out.weights, ParseWeights(path, spec.random_choice().transforms_size(),
                                                 spec.random_choice().p()));
      ASSIGN_OR_RETURN(out.transforms, Held(path, spec.random_choice().transforms()));
      return out;
    }
    case v1::TransformStep::kRandomOrder: {
      step::RandomOrder out;
      ASSIGN_OR_RETURN(out.transforms, Held(path, spec.random_order().transforms()));
      return out;
    }
    case v1::TransformStep::STEP_NOT_SET: break;
  }
  return Invalid(path, "is not supported");
}
}  // namespace

StatusOr<std::vector<Step>> ParseSteps(
    const std::string& path, const google::protobuf::RepeatedPtrField<v1::TransformStep>& specs) {
  return StepReader().ReadAll(path, specs);
}

}  // namespace loaderd::plan
