// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace loaderd {

// Makes a folder of samples below a temporary directory, which goes when the builder does. Paths
// are relative to root() and are bytes; the folders that they need are made. A fault of the file
// system fails the test and throws. Not thread-safe.
class DatasetBuilder {
 public:
  DatasetBuilder();
  ~DatasetBuilder();
  DatasetBuilder(const DatasetBuilder&) = delete;
  DatasetBuilder& operator=(const DatasetBuilder&) = delete;

  const std::string& root() const { return root_; }  // absolute, without links
  std::string Path(std::string_view relative) const;

  // The content tells which file it is, where none is given.
  DatasetBuilder& File(std::string_view relative);
  DatasetBuilder& File(std::string_view relative, std::string_view content);
  DatasetBuilder& Folder(std::string_view relative);
  DatasetBuilder& Link(std::string_view relative, const std::string& target);  // symbolic
  DatasetBuilder& Fifo(std::string_view relative);
  DatasetBuilder& Remove(std::string_view relative);  // with all that is in it
  DatasetBuilder& Mode(std::string_view relative, unsigned mode);
  // Lets all folders look as if they had last changed `age` ago.
  DatasetBuilder& Age(std::chrono::seconds age);

 private:
  void MakeParent(const std::string& path);
  std::string root_;
};

}  // namespace loaderd
