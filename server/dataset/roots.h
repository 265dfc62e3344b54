// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/base/unique_fd.h"

namespace loaderd::dataset {

// Says which files may be opened, and opens them: all, or those under some folders, wherever links
// lead. Immutable and thread-safe; holds one O_PATH descriptor a folder.
class Roots {
 public:
  static std::shared_ptr<const Roots> Unrestricted();
  // A folder that does not exist (yet) admits nothing. `field` is what the refusal names.
  static std::shared_ptr<const Roots> Only(const std::vector<std::string>& folders,
                                           std::string field);

  // open(2) of an absolute path with `flags`, O_CLOEXEC, O_NOCTTY and O_NONBLOCK; links are
  // followed. Messages begin with the printable path; kPermissionDenied names the field where the
  // file is, or may be, outside the folders.
  StatusOr<UniqueFd> Open(const std::string& path, int flags) const;
  // True for the refusal of a file outside the folders; false for the kernel's own refusals.
  static bool Refused(const Status& status);
  // stat(2), by the same rule.
  Status Stat(const std::string& path, struct stat& out) const;
  // The path without links and dots.
  StatusOr<std::string> Canonical(const std::string& path) const;
  // False when a folder is another one than when this was made.
  bool Current() const;

 private:
  struct Root {
    std::string path;       // as given, without a slash at its end
    std::string canonical;  // empty while it does not exist
    UniqueFd fd;
    dev_t device = 0;
    ino_t inode = 0;
  };
  static Root OpenRoot(std::string path);
  Status Outside(const std::string& path) const;
  StatusOr<UniqueFd> OpenChecked(const std::string& path, int flags) const;

  bool restricted_ = false;
  std::string field_;
  std::vector<Root> roots_;
};

}  // namespace loaderd::dataset
