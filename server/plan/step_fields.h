// SPDX-License-Identifier: Apache-2.0
// Fields that several transforms have.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "loaderd/v1/job.pb.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/plan/fields.h"

namespace loaderd::plan {

inline constexpr int64_t kMaxEdge = 65535;
inline constexpr double kMaxRatio = 10000;

using google::protobuf::RepeatedField;

StatusOr<Filter> ParseFilter(const std::string& path, v1::Interpolation value);
// `unset` where nothing is said; refuses all but nearest, bilinear and bicubic.
StatusOr<Filter> ParseWarpFilter(const std::string& path, v1::Interpolation value, Filter unset);

// [edge] or [height, width]; the edge alone has width 0.
StatusOr<Size> ParseSize(const std::string& step_path, const RepeatedField<int64_t>& size);
// The same; the edge alone is both.
StatusOr<Size> ParseBox(const std::string& step_path, const RepeatedField<int64_t>& size);

// [min, max]; `out` stays when there is none.
Status ParseInterval(const std::string& path, const RepeatedField<double>& values, double least,
                     double most, std::array<double, 2>& out);

// One number for all channels or one a channel; finite as float32.
StatusOr<std::vector<double>> ParseChannels(const std::string& path,
                                            const RepeatedField<double>& values, bool divisor);

// `p` of a step that chooses among `count` transforms; refuses 0 of them.
StatusOr<std::vector<double>> ParseWeights(const std::string& step_path, int count,
                                           const RepeatedField<double>& weights);

template <typename Spec>
StatusOr<double> ParseP(const std::string& path, const Spec& spec, double unset) {
  const double p = spec.has_p() ? spec.p() : unset;
  RETURN_IF_ERROR(CheckRange(Sub(path, "p"), p, 0, 1));
  return p;
}

}  // namespace loaderd::plan
