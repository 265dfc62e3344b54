// SPDX-License-Identifier: Apache-2.0
#include "server/plan/step_fields.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace loaderd::plan {
namespace {
constexpr int kMaxChannels = 4;
}  // namespace

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

StatusOr<Filter> ParseWarpFilter(const std::string& path, v1::Interpolation value, Filter unset) {
  return Pick<v1::Interpolation, Filter>(Sub(path, "interpolation"), value, unset,
                                         {{v1::INTERPOLATION_NEAREST, Filter::kNearest},
                                          {v1::INTERPOLATION_BILINEAR, Filter::kBilinear},
                                          {v1::INTERPOLATION_BICUBIC, Filter::kBicubic}});
}

StatusOr<std::vector<double>> ParseWeights(const std::string& step_path, int count,
                                           const RepeatedField<double>& weights) {
  const std::string path = Sub(step_path, "p");
  if (count == 0) return Invalid(Sub(step_path, "transforms"), "must not be empty");
  if (!weights.empty() && weights.size() != count) {
    return Invalid(
        path, absl::StrCat("must have one weight a transform, ", count, ", has ", weights.size()));
  }
  double sum = 0;
  for (int i = 0; i < weights.size(); ++i) {
    RETURN_IF_ERROR(CheckRange(At(path, i), weights[i], 0, 1e6));
    sum += weights[i];
  }
  if (!weights.empty() && sum == 0) return Invalid(path, "must not be all 0");
  return std::vector<double>(weights.begin(), weights.end());
}

}  // namespace loaderd::plan
