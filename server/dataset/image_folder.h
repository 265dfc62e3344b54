// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/status.h"
#include "server/dataset/dataset.h"
#include "server/dataset/folder_index.h"
#include "server/dataset/folder_scan.h"
#include "server/dataset/roots.h"
#include "server/dataset/storage_health.h"

namespace loaderd::dataset {

// True for the file names that torchvision's ImageFolder takes: .jpg, .jpeg, .png, .ppm, .bmp,
// .pgm, .tif, .tiff, .webp, in any case.
bool IsImageName(std::string_view name);

// torchvision's ImageFolder: one class a folder, classes and files in byte order of their names,
// links followed. The order is that of `sorted(os.walk(class, followlinks=True))`. Keeps a
// FolderIndex and no descriptor.
class ImageFolder final : public Dataset {
 public:
  struct Options {
    std::shared_ptr<const Roots> roots;  // shared_ptr: all datasets and the catalog use the same
    uint64_t max_sample_bytes = 256ull << 20;
    int index_threads = 1;
    HiddenRule hidden = HiddenRule::kTorchvision;
    StorageHealth::Options storage = {};
  };
  // Its directories as they were when they were indexed.
  struct State {
    std::vector<DirStamp> stamps;
    bool racy = false;  // one had changed so lately that a later change may not show in its time
  };
  struct Indexed {
    std::unique_ptr<const ImageFolder> folder;
    State state;
  };

  // `path` is absolute. `found` counts samples while it runs. Errors as Catalog::Open says.
  static StatusOr<Indexed> Index(const std::string& path, const Options& options,
                                 std::stop_token stop, std::atomic<uint64_t>& found);
  // With an index that was made before; the folder is not looked at.
  static std::unique_ptr<const ImageFolder> Restore(const std::string& path, const Options& options,
                                                    FolderIndex index);

  // True when no directory has changed since. Asks the file system for each of them.
  bool Unchanged(const State& state) const;
  // True when an index made later says the same, so that this one may serve in its place.
  bool Same(const ImageFolder& other) const;

  const Roots* roots() const { return roots_.get(); }
  const FolderIndex& index() const { return index_; }

  uint64_t size() const override { return index_.size(); }
  int64_t label(uint64_t index) const override;
  Status Read(uint64_t index, ByteBuffer& bytes) const override;
  std::string Name(uint64_t index) const override;
  const std::vector<std::string>& class_names() const override { return index_.class_names; }
  const std::string& order_fingerprint() const override { return index_.order_fingerprint; }
  const std::string& path() const override { return printable_path_; }
  std::string_view kind() const override { return "image_folder"; }
  uint64_t index_bytes() const override;
  double index_seconds() const override { return index_seconds_; }
  const std::vector<EntryNote>& notes() const override { return index_.notes; }
  StorageCounts storage() const override { return storage_.counts(); }

 private:
  using Dir = FolderIndex::Dir;

  ImageFolder(const std::string& path, const Options& options);
  void Take(ScannedFolder scanned, State& state);
  Status CheckClasses() const;
  Status MakeFingerprint(const std::stop_token& stop);
  const Dir& DirOf(uint64_t index) const;
  std::string PathOf(uint64_t index) const;
  void SetPath(uint64_t index, std::string& path) const;
  Status ReadOnce(const std::string& path, ByteBuffer& bytes) const;
  Status Missing(const std::string& path, const Status& status) const;

  const std::string root_;
  const std::string printable_path_;
  const std::shared_ptr<const Roots> roots_;
  const uint64_t max_sample_bytes_;
  FolderIndex index_;
  double index_seconds_ = 0;
  mutable StorageHealth storage_;
};

}  // namespace loaderd::dataset
