// SPDX-License-Identifier: Apache-2.0
// Index snapshots that somebody else wrote, with a right checksum: each is refused with a reason,
// or an index whose every sample has a class and a place in its folder, and which is written again
// as it was read.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/dataset/index_snapshot.h"
#include "server/dataset/sha256.h"

namespace {
using namespace loaderd;
using namespace loaderd::dataset;

std::string Sealed(std::string_view rest) {
  std::string bytes(kSnapshotMagic);
  bytes.append(rest);
  Sha256 sha;
  sha.Add(bytes);
  return bytes + *sha.Finish();
}

void Hold(bool holds) {
  if (!holds) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = Sealed({reinterpret_cast<const char*>(data), size});
  const auto snapshot = DecodeSnapshot(bytes);
  if (!snapshot.ok()) {
    Hold(absl::IsDataLoss(snapshot.status()) && !snapshot.status().message().empty());
    return 0;
  }
  const FolderIndex& index = snapshot->index;
  uint64_t samples = 0;
  for (size_t d = 0; d < index.dirs.size(); ++d) {
    const FolderIndex::Dir& dir = index.dirs[d];
    Hold(dir.first_sample == samples);
    for (; samples < index.EndOf(d); ++samples) {
      Hold(dir.class_index >= 0 && static_cast<size_t>(dir.class_index) < index.class_names.size());
      const std::string_view path = index.PathOf(dir);
      const std::string_view name = index.NameOf(dir, samples);
      Hold(!path.empty() && path[0] != '/' && !name.empty());
      Hold(name.find('/') == std::string_view::npos && name != "..");
    }
  }
  Hold(samples == index.size() && samples > 0);
  std::string again;
  const Status written = EncodeSnapshot(snapshot->of, index, [&](std::string_view piece) {
    again.append(piece);
    return absl::OkStatus();
  });
  Hold(written.ok());
  Hold(DecodeSnapshot(again).ok());
  return 0;
}
