// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/folder_index.h"

namespace loaderd::dataset {

size_t FolderIndex::AddDir(std::string_view path, int64_t class_index, std::string_view dir_names) {
  const size_t before = dirs.size();
  const uint64_t path_begin = dir_paths.size();
  dir_paths.append(path).push_back('\0');
  const auto begin_dir = [&] {
    dirs.push_back({name_offsets.size(), names.size(), path_begin, class_index});
  };
  begin_dir();
  for (size_t at = 0; at < dir_names.size();) {
    const size_t size = dir_names.find('\0', at) + 1 - at;
    if (names.size() - dirs.back().names_begin > UINT32_MAX) begin_dir();
    name_offsets.push_back(static_cast<uint32_t>(names.size() - dirs.back().names_begin));
    names.append(dir_names, at, size);
    at += size;
  }
  return dirs.size() - before;
}

uint64_t FolderIndex::bytes() const {
  uint64_t bytes = dir_paths.capacity() + names.capacity() + dirs.capacity() * sizeof(Dir) +
                   name_offsets.capacity() * sizeof(uint32_t) +
                   class_names.capacity() * sizeof(std::string);
  for (const std::string& name : class_names) {
    if (name.capacity() > std::string().capacity()) bytes += name.capacity();
  }
  return bytes;
}

}  // namespace loaderd::dataset
