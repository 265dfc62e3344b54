// SPDX-License-Identifier: Apache-2.0
#include "server/plan/batch_steps.h"

#include <cstdint>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "loaderd/v1/job.pb.h"
#include "server/plan/fields.h"
#include "server/plan/json_error.h"
#include "server/plan/step_fields.h"

namespace loaderd::plan {
namespace {

constexpr int kMaxClasses = 1 << 20;
constexpr int kMaxChoices = 64;
using Mix = std::variant<step::MixUp, step::CutMix>;

template <typename Out, typename Spec>
StatusOr<Mix> ParseMix(const std::string& path, const Spec& spec) {
  Out out;
  if (spec.has_alpha()) out.alpha = spec.alpha();
  RETURN_IF_ERROR(CheckRange(Sub(path, "alpha"), out.alpha, 1 / kMaxRatio, kMaxRatio));
  const std::string classes = Sub(path, "num_classes");
  if (!spec.has_num_classes()) {
    return Invalid(classes, "is required: the number of classes that labels tell apart");
  }
  ASSIGN_OR_RETURN(out.num_classes, InRange(classes, spec.num_classes(), 1, kMaxClasses));
  return out;
}

int64_t ClassesOf(const Mix& mix) {
  return std::visit([](const auto& step) { return step.num_classes; }, mix);
}

std::string PathOf(const std::string& path, const v1::BatchStep& spec) {
  const auto* field = v1::BatchStep::descriptor()->FindFieldByNumber(spec.step_case());
  return field == nullptr ? path : Sub(path, field->name());
}

// `path` is the step's own, its name included.
StatusOr<Mix> ParseOne(const std::string& path, const v1::BatchStep& spec) {
  if (spec.has_mix_up()) return ParseMix<step::MixUp>(path, spec.mix_up());
  if (spec.has_cut_mix()) return ParseMix<step::CutMix>(path, spec.cut_mix());
  if (spec.has_random_choice()) return Invalid(path, "must be mix_up or cut_mix here");
  return Invalid(path, absl::StrCat("names no transform; there are: ",
                                    FieldNames(*v1::BatchStep::descriptor())));
}

StatusOr<BatchStep> ParseChoice(const std::string& path, const v1::BatchChoice& spec) {
  const std::string list = Sub(path, "transforms");
  if (spec.transforms_size() > kMaxChoices) {
    return Invalid(list, absl::StrCat("must have at most ", kMaxChoices, " steps, has ",
                                      spec.transforms_size()));
  }
  step::BatchChoice out;
  ASSIGN_OR_RETURN(out.weights, ParseWeights(path, spec.transforms_size(), spec.p()));
  for (int i = 0; i < spec.transforms_size(); ++i) {
    const std::string sub = PathOf(At(list, i), spec.transforms(i));
    ASSIGN_OR_RETURN(Mix mix, ParseOne(sub, spec.transforms(i)));
    out.transforms.push_back(mix);
    const int64_t first = ClassesOf(out.transforms[0]);
    if (ClassesOf(mix) != first) {
      return Invalid(Sub(sub, "num_classes"),
                     absl::StrCat("must be as in the first, ", first, ", is ", ClassesOf(mix)));
    }
  }
  return out;
}

}  // namespace

StatusOr<BatchStep> ParseBatchStep(const std::string& path, const v1::BatchStep& spec) {
  const std::string own = PathOf(path, spec);
  if (spec.has_random_choice()) return ParseChoice(own, spec.random_choice());
  ASSIGN_OR_RETURN(const Mix mix, ParseOne(own, spec));
  return std::visit([](const auto& step) -> BatchStep { return step; }, mix);
}

}  // namespace loaderd::plan
