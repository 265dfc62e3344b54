// SPDX-License-Identifier: Apache-2.0
#include "server/transform/batch_mix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/transform/half.h"

namespace loaderd::transform {
namespace {

Status Invalid(const std::string& path, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

// One operation of torch's: the sum of two products, each rounded to the dtype.
struct Single {
  using Bits = uint32_t;
  static float Value(Bits bits) { return std::bit_cast<float>(bits); }
  static Bits Rounded(float value) { return std::bit_cast<uint32_t>(value); }
};
struct Half {
  using Bits = uint16_t;
  static float Value(Bits bits) { return HalfValue(bits); }
  static Bits Rounded(float value) { return HalfBits(value); }
};
struct Brain {
  using Bits = uint16_t;
  static float Value(Bits bits) { return BrainValue(bits); }
  static Bits Rounded(float value) { return BrainBits(value); }
};

template <typename Format>
typename Format::Bits Sum(typename Format::Bits before, typename Format::Bits own, float of_before,
                          float of_own) {
  const float a = Format::Value(Format::Rounded(Format::Value(before) * of_before));
  const float b = Format::Value(Format::Rounded(Format::Value(own) * of_own));
  return Format::Rounded(a + b);
}

// Through arrays of fixed length, which compilers make vector code of.
template <typename Format>
void MixRow(const uint8_t* before, const uint8_t* own, uint8_t* out, uint64_t bytes,
            float of_before, float of_own) {
  constexpr size_t kElements = 64;
  using Block = std::array<typename Format::Bits, kElements>;
  Block a{};
  Block b{};
  Block sum{};
  for (uint64_t at = 0; at < bytes; at += sizeof(Block)) {
    const size_t size = std::min<uint64_t>(sizeof(Block), bytes - at);
    std::memcpy(a.data(), before + at, size);
    std::memcpy(b.data(), own + at, size);
    for (size_t i = 0; i < kElements; ++i) sum[i] = Sum<Format>(a[i], b[i], of_before, of_own);
    std::memcpy(out + at, sum.data(), size);
  }
}

uint32_t Before(uint32_t row, uint32_t count) { return row == 0 ? count - 1 : row - 1; }

bool IsTensor(const RecipeSpec& spec) {
  return std::ranges::any_of(spec.steps, [](const Step& step) {
    return std::holds_alternative<step::PilToTensor>(step) ||
           std::holds_alternative<step::ToTensor>(step);
  });
}

const char* NameOf(const step::MixUp&) { return "mix_up"; }
const char* NameOf(const step::CutMix&) { return "cut_mix"; }

}  // namespace

StatusOr<std::unique_ptr<const BatchMix>> BatchMix::Compile(const BatchStep& step,
                                                            const RecipeSpec& spec,
                                                            const Recipe& recipe) {
  std::unique_ptr<BatchMix> mix(new BatchMix());
  mix->is_tensor_ = IsTensor(spec);
  mix->dtype_ = recipe.dtype();
  const auto& shape = recipe.shape();
  if (!shape || shape->size() != 3) {
    return absl::InternalError("batch_transform: the recipe is not of one size");
  }
  mix->channels_ = static_cast<int>((*shape)[0]);
  mix->height_ = static_cast<int>((*shape)[1]);
  mix->width_ = static_cast<int>((*shape)[2]);
  const auto add = [&](const std::string& path, const auto& one) {
    const std::string own = absl::StrCat(path, ".", NameOf(one));
    if (mix->mixes_.empty()) {
      mix->num_classes_ = one.num_classes;
      mix->classes_path_ = absl::StrCat(own, ".num_classes");
    }
    return mix->Add(own, one);
  };
  if (const auto* choice = std::get_if<step::BatchChoice>(&step)) {
    mix->chooses_ = true;
    mix->weights_ = choice->weights;
    for (size_t i = 0; i < choice->transforms.size(); ++i) {
      const std::string path = absl::StrCat("batch_transform.random_choice.transforms[", i, "]");
      RETURN_IF_ERROR(
          std::visit([&](const auto& one) { return add(path, one); }, choice->transforms[i]));
    }
  } else if (const auto* mix_up = std::get_if<step::MixUp>(&step)) {
    RETURN_IF_ERROR(add("batch_transform", *mix_up));
  } else {
    RETURN_IF_ERROR(add("batch_transform", std::get<step::CutMix>(step)));
  }
  return std::unique_ptr<const BatchMix>(std::move(mix));
}

Status BatchMix::Add(const std::string& path, const step::MixUp& step) {
  if (!is_tensor_) return Invalid(path, "needs a float tensor; put ToTensor into transform");
  if (dtype_ == DType::kUint8) {
    return Invalid(path, "needs a float tensor; put ToTensor or ConvertImageDtype into transform");
  }
  mixes_.push_back({.number = 0, .cuts = false, .alpha = step.alpha});
  if (chooses_) mixes_.back().number = static_cast<uint32_t>(mixes_.size());
  return absl::OkStatus();
}

Status BatchMix::Add(const std::string& path, const step::CutMix& step) {
  if (!is_tensor_)
    return Invalid(path, "needs a tensor; put PILToTensor or ToTensor into transform");
  mixes_.push_back({.number = 0, .cuts = true, .alpha = step.alpha});
  if (chooses_) mixes_.back().number = static_cast<uint32_t>(mixes_.size());
  return absl::OkStatus();
}

void BatchMix::Apply(const BatchKey& key, const Source& from, const Target& to) const {
  if (from.count == 0) return;
  const Mix& mix = mixes_[chooses_ ? Chosen(key.At(0), mixes_.size(), weights_) : 0];
  const Place place = key.At(mix.number);
  if (mix.cuts) {
    const Cut cut = CutOf(place, mix.alpha, height_, width_);
    CutImages(cut, from, to);
    MixLabels(cut.lam, from, to);
  } else {
    const double lam = BetaOf(place, mix.alpha);
    MixImages(lam, from, to);
    MixLabels(lam, from, to);
  }
}

void BatchMix::MixImages(double lam, const Source& from, const Target& to) const {
  const uint64_t row = from.images.size() / from.count;
  const auto of_before = static_cast<float>(1.0 - lam);
  const auto of_own = static_cast<float>(lam);
  for (uint32_t i = 0; i < from.count; ++i) {
    const uint8_t* before = from.images.data() + Before(i, from.count) * row;
    const uint8_t* own = from.images.data() + i * row;
    uint8_t* out = to.images.data() + i * row;
    if (dtype_ == DType::kFloat16) {
      MixRow<Half>(before, own, out, row, of_before, of_own);
    } else if (dtype_ == DType::kBfloat16) {
      MixRow<Brain>(before, own, out, row, of_before, of_own);
    } else {
      MixRow<Single>(before, own, out, row, of_before, of_own);
    }
  }
}

void BatchMix::CutImages(const Cut& cut, const Source& from, const Target& to) const {
  std::memcpy(to.images.data(), from.images.data(), from.images.size());
  if (cut.x0 >= cut.x1) return;
  const uint64_t row = from.images.size() / from.count;
  const uint64_t bytes = DTypeBytes(dtype_);
  const uint64_t line = static_cast<uint64_t>(width_) * bytes;
  const uint64_t first = static_cast<uint64_t>(cut.x0) * bytes;
  const uint64_t size = static_cast<uint64_t>(cut.x1 - cut.x0) * bytes;
  for (uint32_t i = 0; i < from.count; ++i) {
    const uint8_t* before = from.images.data() + Before(i, from.count) * row;
    uint8_t* out = to.images.data() + i * row;
    for (int c = 0; c < channels_; ++c) {
      for (int y = cut.y0; y < cut.y1; ++y) {
        const uint64_t at =
            (static_cast<uint64_t>(c) * static_cast<uint64_t>(height_) + static_cast<uint64_t>(y)) *
                line +
            first;
        std::memcpy(out + at, before + at, size);
      }
    }
  }
}

void BatchMix::MixLabels(double lam, const Source& from, const Target& to) const {
  const auto of_before = static_cast<float>(1.0 - lam);
  const auto of_own = static_cast<float>(lam);
  const auto label = [&](uint32_t row) {
    int64_t value = 0;
    std::memcpy(&value, from.labels.data() + row * sizeof(value), sizeof(value));
    return static_cast<uint64_t>(value);
  };
  const uint64_t row = static_cast<uint64_t>(num_classes_) * sizeof(float);
  std::memset(to.labels.data(), 0, from.count * row);
  for (uint32_t i = 0; i < from.count; ++i) {
    uint8_t* out = to.labels.data() + i * row;
    const uint64_t own = label(i);
    const uint64_t before = label(Before(i, from.count));
    const float both = own == before ? of_before + of_own : of_own;
    std::memcpy(out + own * sizeof(float), &both, sizeof(float));
    if (own != before) std::memcpy(out + before * sizeof(float), &of_before, sizeof(float));
  }
}

}  // namespace loaderd::transform
