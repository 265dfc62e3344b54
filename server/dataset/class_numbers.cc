// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/class_numbers.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace loaderd::dataset {
namespace {

constexpr char kField[] = "dataset.image_folder.class_to_idx";

class Renumbered final : public Dataset {
 public:
  Renumbered(std::shared_ptr<const Dataset> dataset, std::vector<int64_t> numbers,
             std::vector<std::string> class_names)
      : dataset_(std::move(dataset)),
        numbers_(std::move(numbers)),
        class_names_(std::move(class_names)) {}

  uint64_t size() const override { return dataset_->size(); }
  int64_t label(uint64_t index) const override {
    return numbers_[static_cast<size_t>(dataset_->label(index))];
  }
  Status Read(uint64_t index, ByteBuffer& bytes) const override {
    return dataset_->Read(index, bytes);
  }
  std::string Name(uint64_t index) const override { return dataset_->Name(index); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  const std::string& order_fingerprint() const override { return dataset_->order_fingerprint(); }
  const std::string& path() const override { return dataset_->path(); }
  std::string_view kind() const override { return dataset_->kind(); }
  uint64_t index_bytes() const override { return dataset_->index_bytes(); }
  double index_seconds() const override { return dataset_->index_seconds(); }
  const std::vector<EntryNote>& notes() const override { return dataset_->notes(); }
  StorageCounts storage() const override { return dataset_->storage(); }

 private:
  const std::shared_ptr<const Dataset> dataset_;
  const std::vector<int64_t> numbers_;  // by the dataset's own labels
  const std::vector<std::string> class_names_;
};

}  // namespace

StatusOr<std::shared_ptr<const Dataset>> WithClassNumbers(
    std::shared_ptr<const Dataset> dataset,
    const std::vector<std::pair<std::string, int64_t>>& class_to_idx) {
  if (class_to_idx.empty()) return dataset;
  absl::flat_hash_map<std::string, int64_t> by_name;
  for (const auto& [name, number] : class_to_idx) {
    if (!by_name.emplace(name, number).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(kField, ": names the class \"", Printable(name), "\" twice"));
    }
  }
  std::vector<int64_t> numbers;
  for (const std::string& name : dataset->class_names()) {
    const auto it = by_name.find(name);
    if (it == by_name.end()) {
      return absl::InvalidArgumentError(absl::StrCat(kField, ": has no number for the class \"",
                                                     Printable(name), "\" of ", dataset->path()));
    }
    numbers.push_back(it->second);
  }
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [name, number] : class_to_idx) order.emplace_back(number, name);
  std::sort(order.begin(), order.end());
  std::vector<std::string> names;
  for (auto& [number, name] : order) names.push_back(std::move(name));
  return std::make_shared<const Renumbered>(std::move(dataset), std::move(numbers),
                                            std::move(names));
}

}  // namespace loaderd::dataset
