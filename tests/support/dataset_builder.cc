// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dataset_builder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace loaderd {
namespace {

namespace fs = std::filesystem;

void Check(bool ok, const std::string& what) {
  if (ok) return;
  const std::error_code error(errno, std::generic_category());
  ADD_FAILURE() << what << ": " << error.message();
  throw std::system_error(error, what);
}

}  // namespace

DatasetBuilder::DatasetBuilder() {
  std::string name = (fs::canonical(fs::temp_directory_path()) / "loaderd-test-XXXXXX").string();
  Check(::mkdtemp(name.data()) != nullptr, name);
  Check(::chmod(name.c_str(), 0755) == 0, name);  // tests read it as another user
  root_ = name;
}

DatasetBuilder::~DatasetBuilder() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

std::string DatasetBuilder::Path(std::string_view relative) const {
  return root_ + "/" + std::string(relative);
}

void DatasetBuilder::MakeParent(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
}

DatasetBuilder& DatasetBuilder::File(std::string_view relative) {
  return File(relative, "bytes of " + std::string(relative));
}

DatasetBuilder& DatasetBuilder::File(std::string_view relative, std::string_view content) {
  const std::string path = Path(relative);
  MakeParent(path);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << content;
  out.close();
  Check(!out.fail(), path);
  return *this;
}

DatasetBuilder& DatasetBuilder::Folder(std::string_view relative) {
  fs::create_directories(Path(relative));
  return *this;
}

DatasetBuilder& DatasetBuilder::Link(std::string_view relative, const std::string& target) {
  const std::string path = Path(relative);
  MakeParent(path);
  Check(::symlink(target.c_str(), path.c_str()) == 0, path);
  return *this;
}

DatasetBuilder& DatasetBuilder::Fifo(std::string_view relative) {
  const std::string path = Path(relative);
  MakeParent(path);
  Check(::mkfifo(path.c_str(), 0644) == 0, path);
  return *this;
}

DatasetBuilder& DatasetBuilder::Remove(std::string_view relative) {
  Check(fs::remove_all(Path(relative)) > 0, Path(relative));
  return *this;
}

DatasetBuilder& DatasetBuilder::Mode(std::string_view relative, unsigned mode) {
  Check(::chmod(Path(relative).c_str(), mode) == 0, Path(relative));
  return *this;
}

DatasetBuilder& DatasetBuilder::Age(std::chrono::seconds age) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec -= age.count();
  const timespec times[2] = {now, now};
  std::vector<std::string> folders = {root_};
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    if (entry.is_directory() && !entry.is_symlink()) folders.push_back(entry.path().string());
  }
  for (const std::string& folder : folders) {
    Check(::utimensat(AT_FDCWD, folder.c_str(), times, 0) == 0, folder);
  }
  return *this;
}

}  // namespace loaderd
