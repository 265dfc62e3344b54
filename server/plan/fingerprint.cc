// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>

#include <bit>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "server/plan/job.h"

namespace loaderd::plan {
namespace {

// One serialisation a job: fields in a fixed order, numbers as 8 bytes little-endian, lengths
// before what varies. A change of it is a change of every fingerprint, so the text it begins with
// has a version.
class Canonical {
 public:
  void Add(std::string_view text) {
    Add(uint64_t{text.size()});
    bytes_.append(text);
  }
  void Add(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(value >> shift));
  }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value)); }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void Add(Enum value) { Add(static_cast<uint64_t>(value)); }
  void Add(Size size) {
    Add(static_cast<uint64_t>(size.height));
    Add(static_cast<uint64_t>(size.width));
  }
  template <typename Values>
  requires std::is_same_v<typename Values::value_type, double>
  void Add(const Values& values) {
    Add(uint64_t{values.size()});
    for (const double value : values) Add(value);
  }
  void Add(const step::Fill& fill) {
    Add(uint64_t{fill.size()});
    for (const uint8_t value : fill) bytes_.push_back(static_cast<char>(value));
  }
  void Add(const Padding& padding) {
    for (const int side : {padding.left, padding.top, padding.right, padding.bottom}) {
      Add(static_cast<uint64_t>(side));
    }
  }
  template <typename Value>
  void Add(const std::optional<Value>& value) {
    Add(uint64_t{value.has_value()});
    if (value) Add(*value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

struct AddBatchStep {
  Canonical& out;

  template <typename Mix>
  void operator()(const Mix& step) const {
    out.Add(step.alpha);
    out.Add(static_cast<uint64_t>(step.num_classes));
  }
  void operator()(const step::BatchChoice& step) const {
    out.Add(uint64_t{step.transforms.size()});
    for (const auto& mix : step.transforms) {
      out.Add(uint64_t{mix.index()});
      std::visit(*this, mix);
    }
    out.Add(step.weights);
  }
};

struct AddStep {
  Canonical& out;

  void operator()(const step::Resize& step) const {
    const int* edge = std::get_if<int>(&step.size);
    out.Add(edge != nullptr ? Size{.height = *edge} : std::get<Size>(step.size));
    out.Add(static_cast<uint64_t>(step.max_size.value_or(0)));
    out.Add(step.filter);
  }
  void operator()(const step::CenterCrop& step) const { out.Add(step.size); }
  void operator()(const step::RandomResizedCrop& step) const {
    out.Add(step.size);
    out.Add(step.scale);
    out.Add(step.ratio);
    out.Add(step.filter);
  }
  void operator()(const step::RandomHorizontalFlip& step) const { out.Add(step.p); }
  void operator()(const step::Grayscale& step) const {
    out.Add(static_cast<uint64_t>(step.channels));
  }
  void operator()(const step::PilToTensor&) const {}
  void operator()(const step::ToTensor&) const {}
  void operator()(const step::ConvertImageDtype& step) const { out.Add(step.dtype); }
  void operator()(const step::Normalize& step) const {
    out.Add(step.mean);
    out.Add(step.std);
  }
  void operator()(const step::Pad& step) const {
    out.Add(step.padding);
    out.Add(step.fill);
    out.Add(step.mode);
  }
  void operator()(const step::RandomCrop& step) const {
    out.Add(step.size);
    out.Add(step.padding);
    out.Add(static_cast<uint64_t>(step.pad_if_needed));
    out.Add(step.fill);
    out.Add(step.mode);
  }
  void operator()(const step::RandomVerticalFlip& step) const { out.Add(step.p); }
  void operator()(const step::RandomRotation& step) const {
    out.Add(step.degrees);
    out.Add(step.filter);
    out.Add(static_cast<uint64_t>(step.expand));
    out.Add(step.center);
    out.Add(step.fill);
  }
  void operator()(const step::RandomAffine& step) const {
    out.Add(step.degrees);
    out.Add(step.translate);
    out.Add(step.scale);
    out.Add(step.shear_x);
    out.Add(step.shear_y);
    out.Add(step.filter);
    out.Add(step.fill);
    out.Add(step.center);
  }
  void operator()(const step::RandomPerspective& step) const {
    out.Add(step.distortion_scale);
    out.Add(step.p);
    out.Add(step.filter);
    out.Add(step.fill);
  }
  void operator()(const step::ColorJitter& step) const {
    out.Add(step.brightness);
    out.Add(step.contrast);
    out.Add(step.saturation);
    out.Add(step.hue);
  }
  void operator()(const step::RandomGrayscale& step) const { out.Add(step.p); }
  void operator()(const step::GaussianBlur& step) const {
    out.Add(static_cast<uint64_t>(step.kernel[0]));
    out.Add(static_cast<uint64_t>(step.kernel[1]));
    out.Add(step.sigma);
  }
  void operator()(const step::RandomErasing& step) const {
    out.Add(step.p);
    out.Add(step.scale);
    out.Add(step.ratio);
    out.Add(step.value);
  }
  void operator()(const step::RandAugment& step) const {
    out.Add(static_cast<uint64_t>(step.num_ops));
    out.Add(static_cast<uint64_t>(step.magnitude));
    out.Add(static_cast<uint64_t>(step.num_magnitude_bins));
    out.Add(step.filter);
    out.Add(step.fill);
  }
  void operator()(const step::TrivialAugmentWide& step) const {
    out.Add(static_cast<uint64_t>(step.num_magnitude_bins));
    out.Add(step.filter);
    out.Add(step.fill);
  }
  void operator()(const step::AutoAugment& step) const {
    out.Add(step.policy);
    out.Add(step.filter);
    out.Add(step.fill);
  }
  void operator()(const step::RandomInvert& step) const { out.Add(step.p); }
  void operator()(const step::RandomPosterize& step) const {
    out.Add(static_cast<uint64_t>(step.bits));
    out.Add(step.p);
  }
  void operator()(const step::RandomSolarize& step) const {
    out.Add(step.threshold);
    out.Add(step.p);
  }
  void operator()(const step::RandomAdjustSharpness& step) const {
    out.Add(step.factor);
    out.Add(step.p);
  }
  void operator()(const step::RandomAutocontrast& step) const { out.Add(step.p); }
  void operator()(const step::RandomEqualize& step) const { out.Add(step.p); }
  void operator()(const step::RandomApply& step) const {
    Held(step.transforms);
    out.Add(step.p);
  }
  void operator()(const step::RandomChoice& step) const {
    Held(step.transforms);
    out.Add(step.weights);
  }
  void operator()(const step::RandomOrder& step) const { Held(step.transforms); }

  void Held(const std::vector<step::Nested>& steps) const {
    out.Add(uint64_t{steps.size()});
    for (const step::Nested& nested : steps) {
      out.Add(uint64_t{nested.step.index()});
      std::visit(*this, nested.step);
    }
  }
};

std::string Sha256Hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  // Fails only where libcrypto has no SHA-256 at all; the fingerprint is then empty, and equal to
  // none.
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) != 1) return "";
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
}

}  // namespace

std::string Job::Fingerprint() const {
  Canonical out;
  out.Add(std::string_view("loaderd job 1"));
  out.Add(std::string_view(dataset.image_folder));
  out.Add(std::string_view(dataset.name));
  out.Add(recipe.mode);
  out.Add(recipe.reference);
  out.Add(recipe.fidelity);
  out.Add(uint64_t{recipe.steps.size()});
  for (const Step& step : recipe.steps) {
    out.Add(uint64_t{step.index()});
    std::visit(AddStep{out}, step);
  }
  out.Add(order.kind);
  out.Add(order.seed);
  out.Add(uint64_t{order.rank});
  out.Add(uint64_t{order.world_size});
  out.Add(order.shard);
  out.Add(uint64_t{batch_size});
  out.Add(uint64_t{drop_last});
  out.Add(on_bad_sample);
  out.Add(uint64_t{recipe.exif_transpose});
  out.Add(recipe.wide);
  // Later fields only where they are set: fingerprints without them stay what they were.
  if (dataset.hidden != HiddenRule::kTorchvision) {
    out.Add(std::string_view("hidden"));
    out.Add(dataset.hidden);
  }
  if (!dataset.class_to_idx.empty()) {
    out.Add(std::string_view("class_to_idx"));
    for (const auto& [name, number] : dataset.class_to_idx) {
      out.Add(std::string_view(name));
      out.Add(static_cast<uint64_t>(number));
    }
  }
  if (batch_transform.has_value()) {
    out.Add(std::string_view("batch_transform"));
    out.Add(uint64_t{batch_transform->index()});
    std::visit(AddBatchStep{out}, *batch_transform);
  }
  return Sha256Hex(out.bytes());
}

}  // namespace loaderd::plan
