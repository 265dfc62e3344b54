// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/dataset/dataset.h"

namespace loaderd::dataset {

// What an image folder's samples are called, in order: all of its index but where the folder is.
// A plain value, of 4 bytes a sample beside its name.
struct FolderIndex {
  struct Dir {
    uint64_t first_sample = 0;
    uint64_t names_begin = 0;  // in `names`; offsets of samples count from here
    uint64_t path_begin = 0;   // in `dir_paths`
    int64_t class_index = -1;  // -1: the root, which has no samples
  };

  std::vector<std::string> class_names;  // in byte order
  std::vector<Dir> dirs;                 // by first_sample; the root is the first
  std::string dir_paths;                 // relative to the root, each with a NUL behind it
  std::string names;                     // likewise, of the samples
  std::vector<uint32_t> name_offsets;    // one a sample
  std::string order_fingerprint;
  std::vector<EntryNote> notes;

  uint64_t size() const { return name_offsets.size(); }
  uint64_t EndOf(size_t dir) const {
    return dir + 1 < dirs.size() ? dirs[dir + 1].first_sample : size();
  }
  // The directory's names as they stand in `names`.
  std::string_view NamesOf(size_t dir) const {
    const uint64_t end = dir + 1 < dirs.size() ? dirs[dir + 1].names_begin : names.size();
    return std::string_view(names).substr(dirs[dir].names_begin, end - dirs[dir].names_begin);
  }
  const char* PathOf(const Dir& dir) const { return dir_paths.c_str() + dir.path_begin; }
  const char* NameOf(const Dir& dir, uint64_t sample) const {
    return names.c_str() + dir.names_begin + name_offsets[sample];
  }

  // Adds names, each with a NUL behind it, in as many directories of that path and class as
  // offsets of 32 bits need; at least one. Returns how many.
  size_t AddDir(std::string_view path, int64_t class_index, std::string_view dir_names);
  // Memory, without that of the value itself.
  uint64_t bytes() const;
};

}  // namespace loaderd::dataset
