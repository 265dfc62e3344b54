// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/index_work.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/dataset/entry_notes.h"

namespace loaderd::dataset {
namespace {

// What was found beside plain samples, in one line.
void LogNotes(const ImageFolder& folder) {
  if (folder.notes().empty()) return;
  const bool odd = std::any_of(folder.notes().begin(), folder.notes().end(),
                               [](const EntryNote& note) { return note.taken; });
  const std::string line =
      absl::StrCat("dataset ", folder.path(), ": ", folder.size(), " samples in ",
                   folder.class_names().size(), " classes; ", Told(folder.notes()));
  odd ? LogWarning(line) : LogInfo(line);
}

ImageFolder::Indexed FromSnapshot(const IndexWork& work, const ImageFolder::Options& options,
                                  SnapshotStore* store) {
  const auto log = [&](const std::string& text) {
    LogInfo(absl::StrCat("dataset ", Printable(work.path), ": ", text));
  };
  StatusOr<FolderIndex> index = absl::NotFoundError("there is no state directory");
  if (store != nullptr) index = store->Load({work.path, work.hidden}, work.order);
  if (!index.ok()) {
    log(absl::StrCat(MessageOf(index.status()), "; indexing the folder in its place"));
    return {};
  }
  log(absl::StrCat("as it was, with ", index->size(), " samples, from its index snapshot; order ",
                   work.order));
  return {ImageFolder::Restore(work.path, options, *std::move(index)), {}};
}

}  // namespace

StatusOr<ImageFolder::Indexed> MakeIndex(IndexWork& work, const IndexLimits& limits,
                                         SnapshotStore* store) {
  const ImageFolder::Options options = {.roots = work.roots,
                                        .max_sample_bytes = limits.max_sample_bytes,
                                        .index_threads = limits.index_threads,
                                        .hidden = work.hidden};
  if (!work.order.empty()) return FromSnapshot(work, options, store);
  if (work.known != nullptr && work.known->roots() == work.roots.get() &&
      work.known->Unchanged(work.known_state)) {
    return ImageFolder::Indexed{};
  }
  auto indexed = ImageFolder::Index(work.path, options, work.stop.get_token(), work.found);
  if (indexed.ok()) LogNotes(*indexed->folder);
  return indexed;
}

}  // namespace loaderd::dataset
