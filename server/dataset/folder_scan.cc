// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/folder_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "server/base/mutex.h"
#include "server/dataset/entry_notes.h"
#include "server/dataset/storage_health.h"

namespace loaderd::dataset {
namespace {

constexpr uint64_t kEntriesBetweenChecks = 1024;

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

// The directories above one; shared_ptr: siblings have the same ones above them.
struct Above {
  DirStamp stamp;
  std::string path;
  std::shared_ptr<const Above> parent;
};

struct Task {
  std::string path;
  int class_index = -1;
  std::shared_ptr<const Above> above;
};

struct Found {
  ScannedDir dir;
  std::vector<std::string> subdirs;  // names
  std::shared_ptr<const Above> self;
  OddityTally odd;
  bool loop = false;  // it is one of those above it: not read
};

enum class Entry { kDirectory, kFile, kDangling };

bool IsHidden(std::string_view name) { return name.starts_with('.') || name == "__MACOSX"; }

std::string Joined(std::string_view dir, std::string_view name) {
  if (dir.empty()) return std::string(name);
  std::string joined(dir);
  if (dir.back() != '/') joined.push_back('/');
  return joined.append(name);
}

class Scan {
 public:
  Scan(const std::string& root, const ScanOptions& options) : root_(root), options_(options) {}

  StatusOr<ScannedFolder> Run() {
    StatusOr<Found> top = ReadDirectory(Task{});
    if (!top.ok()) return std::move(top).status();
    ScannedFolder out;
    out.class_names = std::move(top->subdirs);
    std::sort(out.class_names.begin(), out.class_names.end());
    {
      MutexLock lock(mutex_);
      dirs_.push_back(std::move(top->dir));
      odd_.Add(top->odd);
      for (size_t i = out.class_names.size(); i-- > 0;) {
        tasks_.push_back({out.class_names[i], static_cast<int>(i), top->self});
      }
    }
    WorkInThreads();
    MutexLock lock(mutex_);
    if (!status_.ok()) return status_;
    std::sort(dirs_.begin(), dirs_.end(), [](const ScannedDir& a, const ScannedDir& b) {
      return a.class_index != b.class_index ? a.class_index < b.class_index : a.path < b.path;
    });
    out.dirs = std::move(dirs_);
    out.notes = odd_.Notes();
    return out;
  }

 private:
  void WorkInThreads() {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < options_.threads; ++i) {
      try {
        helpers.emplace_back([this] { Work(); });
      } catch (const std::system_error&) {
        break;  // no more threads to be had: fewer do it as well
      }
    }
    Work();
  }

  void Work() {
    Task task;
    while (Next(task)) {
      StatusOr<Found> found = ReadDirectory(task);
      MutexLock lock(mutex_);
      --busy_;
      if (!found.ok()) {
        // Of several faults the first in order is told, as far as they are known.
        if (status_.ok() || task.path < failed_) {
          status_ = std::move(found).status();
          failed_ = task.path;
        }
        tasks_.clear();
      } else if (found->loop) {
        odd_.Add(Oddity::kLinkLoop, task.path, "");
      } else {
        odd_.Add(found->odd);
        dirs_.push_back(std::move(found->dir));
        if (status_.ok()) {
          for (const std::string& name : found->subdirs) {
            tasks_.push_back({Joined(task.path, name), task.class_index, found->self});
          }
        }
      }
      changed_.NotifyAll();
    }
  }

  // False when all is done. The last come is the first served: it keeps the list short.
  bool Next(Task& task) {
    MutexLock lock(mutex_);
    while (tasks_.empty() && busy_ > 0) changed_.Wait(mutex_);
    if (tasks_.empty()) return false;
    task = std::move(tasks_.back());
    tasks_.pop_back();
    ++busy_;
    return true;
  }

  StatusOr<Found> ReadDirectory(const Task& task) const {
    const std::string path = task.path.empty() ? root_ : Joined(root_, task.path);
    ASSIGN_OR_RETURN(UniqueFd fd, options_.roots->Open(path, O_RDONLY | O_DIRECTORY));
    struct stat status;
    if (::fstat(fd.get(), &status) != 0) return FileStatus(errno, Printable(path));
    Found found{.dir = {.path = task.path,
                        .class_index = task.class_index,
                        .stamp = StampOf(status),
                        .names = {}},
                .subdirs = {},
                .self = nullptr,
                .odd = {}};
    for (const Above* above = task.above.get(); above != nullptr; above = above->parent.get()) {
      if (above->stamp.device == found.dir.stamp.device &&
          above->stamp.inode == found.dir.stamp.inode) {
        found.loop = true;
        return found;
      }
    }
    found.self = std::make_shared<Above>(Above{found.dir.stamp, task.path, task.above});
    const std::unique_ptr<DIR, CloseDir> dir(::fdopendir(fd.get()));
    if (dir == nullptr) return FileStatus(errno, Printable(path));
    const int dir_fd = fd.release();  // closed with `dir`

    std::string names;
    uint64_t told = 0;
    for (uint64_t entries = 0;; ++entries) {
      if (entries % kEntriesBetweenChecks == 0) {
        if (options_.stop.stop_requested())
          return absl::CancelledError(absl::StrCat(Printable(path), ": indexing cancelled"));
        *options_.found += found.dir.count - std::exchange(told, found.dir.count);
      }
      errno = 0;
      const dirent* entry = ::readdir(dir.get());
      if (entry == nullptr) {
        if (errno != 0) return FileStatus(errno, Printable(path));
        break;
      }
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (options_.hidden == HiddenRule::kSkip && IsHidden(name)) {
        found.odd.Add(Oddity::kHidden, task.path, name);
        continue;
      }
      ASSIGN_OR_RETURN(const Entry kind, KindOf(dir_fd, path, *entry));
      if (Take(task, name, kind, found.odd)) {
        if (IsHidden(name)) found.odd.Add(Oddity::kHiddenTaken, task.path, name);
        if (kind == Entry::kDirectory) {
          found.subdirs.emplace_back(name);
        } else {
          names.append(name).push_back('\0');
          ++found.dir.count;
        }
      }
    }
    *options_.found += found.dir.count - told;
    found.dir.names = Sorted(names, found.dir.count);
    return found;
  }

  // True for a directory to enter and a file to list; what else there is is tallied.
  bool Take(const Task& task, std::string_view name, Entry kind, OddityTally& odd) const {
    if (kind == Entry::kDirectory) return true;
    const bool sample = task.class_index >= 0 && options_.wanted(name);
    if (kind == Entry::kDangling) {
      odd.Add(sample ? Oddity::kDanglingSample : Oddity::kDanglingLink, task.path, name);
    } else if (!sample) {
      odd.Add(task.class_index < 0 ? Oddity::kBesideClasses : Oddity::kExtension, task.path, name);
    }
    return sample;
  }

  // As Python's DirEntry.is_dir(): a link counts as what it leads to, and one that leads nowhere is
  // no directory.
  StatusOr<Entry> KindOf(int dir_fd, const std::string& dir, const dirent& entry) const {
    const auto kind = [](bool directory) { return directory ? Entry::kDirectory : Entry::kFile; };
    if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return kind(entry.d_type == DT_DIR);
    struct stat status;
    if (entry.d_type == DT_UNKNOWN) {
      if (::fstatat(dir_fd, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) return Entry::kFile;
      if (!S_ISLNK(status.st_mode)) return kind(S_ISDIR(status.st_mode));
    }
    const Status followed = options_.roots->Stat(Joined(dir, entry.d_name), status);
    // The kernel's own refusal is as good as a link to nowhere, as in Python; the roots' refusal is
    // told.
    if (Roots::Refused(followed)) return followed;
    if (followed.ok()) return kind(S_ISDIR(status.st_mode));
    return absl::IsPermissionDenied(followed) ? Entry::kFile : Entry::kDangling;
  }

  static std::string Sorted(const std::string& names, uint64_t count) {
    std::vector<std::string_view> order;
    order.reserve(count);
    for (size_t begin = 0; begin < names.size();) {
      const size_t length = std::strlen(names.c_str() + begin);
      order.emplace_back(names.data() + begin, length);
      begin += length + 1;
    }
    std::sort(order.begin(), order.end());
    std::string out;
    out.reserve(names.size());
    for (const std::string_view name : order) out.append(name).push_back('\0');
    return out;
  }

  const std::string& root_;
  const ScanOptions& options_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<ScannedDir> dirs_ ABSL_GUARDED_BY(mutex_);
  OddityTally odd_ ABSL_GUARDED_BY(mutex_);
  Status status_ ABSL_GUARDED_BY(mutex_);
  std::string failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

DirStamp StampOf(const struct stat& status) {
  const auto nanos = [](const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .mtime_ns = nanos(status.st_mtim),
          .ctime_ns = nanos(status.st_ctim)};
}

StatusOr<ScannedFolder> ScanFolder(const std::string& root, const ScanOptions& options) {
  return Scan(root, options).Run();
}

}  // namespace loaderd::dataset
