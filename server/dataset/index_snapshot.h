// SPDX-License-Identifier: Apache-2.0
// An image folder's index as bytes, to be read by a later process on the same machine. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/dataset/folder_index.h"

namespace loaderd::dataset {

// Whose index it is.
struct SnapshotOf {
  std::string path;  // the folder's, absolute and without links
  HiddenRule hidden = HiddenRule::kTorchvision;
  friend bool operator==(const SnapshotOf&, const SnapshotOf&) = default;
};

struct IndexSnapshot {
  SnapshotOf of;
  FolderIndex index;
};

// Numbers have 64 bits, the lowest byte first; a text is its length and its bytes; a list is its
// length and its elements:
//   the text kSnapshotMagic, without a length; it names the version
//   path, hidden rule, order fingerprint, class names
//   directories: path, class, names (each with a NUL behind it)
//   notes: kind, taken, count, first names
//   SHA-256 of all before it
inline constexpr std::string_view kSnapshotMagic = "loaderd index 1\n";

// Gives the bytes to `write` piece by piece, so that no second copy of the names is made; the first
// error ends it.
Status EncodeSnapshot(const SnapshotOf& of, const FolderIndex& index,
                      absl::FunctionRef<Status(std::string_view)> write);
// How many they are.
uint64_t SnapshotBytes(const SnapshotOf& of, const FolderIndex& index);

// kDataLoss, saying why, for anything that EncodeSnapshot cannot have made: a wrong checksum, a
// length beyond the end, a name that leads out of its folder, an order that no index has. Takes no
// more memory than some times the size of `bytes`.
StatusOr<IndexSnapshot> DecodeSnapshot(std::string_view bytes);

}  // namespace loaderd::dataset
