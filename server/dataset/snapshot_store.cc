// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/snapshot_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/dataset/sha256.h"

namespace loaderd::dataset {
namespace {

constexpr std::string_view kEnding = ".index";
constexpr std::string_view kUnfinished = ".unfinished-";
constexpr size_t kPathDigits = 32;
constexpr int64_t kNanos = 1'000'000'000;
constexpr int64_t kUnfinishedFor = 3600 * kNanos;  // then its writer is dead
constexpr int kNice = 19;
constexpr timespec kTouch[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};

// Names say whose they are without being paths.
StatusOr<std::string> NameOf(const SnapshotOf& of, const std::string& order_fingerprint) {
  Sha256 sha;
  sha.Add(of.path);
  sha.Add(static_cast<uint64_t>(of.hidden));
  ASSIGN_OR_RETURN(const std::string digest, sha.Finish());
  return absl::StrCat(absl::BytesToHexString(digest).substr(0, kPathDigits), "-", order_fingerprint,
                      std::string(kEnding));
}

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return ErrnoStatus(errno, absl::StrCat("write ", Printable(path)));
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

int64_t NanosOf(const timespec& time) { return int64_t{time.tv_sec} * kNanos + time.tv_nsec; }

// The folder and those above it that are missing.
void MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    ::mkdir(path.substr(0, slash).c_str(), 0700);
    if (slash == std::string::npos) return;
  }
}

struct File {
  std::string name;
  uint64_t bytes = 0;
  int64_t used_ns = 0;
};

// All snapshots; what a dead writer left behind is removed.
std::vector<File> FilesIn(int folder, int64_t now) {
  std::vector<File> files;
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(again < 0 ? nullptr : ::fdopendir(again),
                                                    &::closedir);
  if (entries == nullptr) {
    if (again >= 0) ::close(again);
    return files;
  }
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    const bool unfinished = name.starts_with(kUnfinished);
    struct stat facts;
    if ((!unfinished && !name.ends_with(kEnding)) ||
        ::fstatat(folder, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    const int64_t used = NanosOf(facts.st_mtim);
    if (!unfinished) {
      files.push_back({std::string(name), static_cast<uint64_t>(facts.st_size), used});
    } else if (now - used > kUnfinishedFor) {
      ::unlinkat(folder, entry->d_name, 0);
    }
  }
  return files;
}

}  // namespace

SnapshotStore::SnapshotStore(Options options)
    : options_(std::move(options)), folder_(absl::StrCat(options_.state_dir, "/snapshots")) {
  try {
    busy_ = true;  // with its first sweep
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    LogWarning(
        absl::StrCat("index snapshots are not kept: no thread to write them: ", error.what()));
  }
}

SnapshotStore::~SnapshotStore() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void SnapshotStore::Keep(const SnapshotOf& of, const std::shared_ptr<const FolderIndex>& index) {
  const StatusOr<std::string> name = NameOf(of, index->order_fingerprint);
  if (!name.ok() || !thread_.joinable()) return;
  MutexLock lock(mutex_);
  std::weak_ptr<const FolderIndex>& holder = held_[*name];
  if (holder.lock() == index) return;  // it has been given already
  holder = index;
  waiting_.push_back({*name, of, index});
  changed_.NotifyAll();
}

void SnapshotStore::Flush() {
  MutexLock lock(mutex_);
  while (thread_.joinable() && (busy_ || !waiting_.empty())) changed_.Wait(mutex_);
}

// The store's thread.
void SnapshotStore::Run() {
  // Trainers' batches come first. A sandbox may forbid it; then it is one thread among many.
  ::setpriority(PRIO_PROCESS, 0, kNice);
  Clock::Time next_sweep = Clock::Real().Now();
  while (true) {
    Waiting waiting;
    {
      MutexLock lock(mutex_);
      busy_ = false;
      changed_.NotifyAll();
      while (waiting_.empty() && !stopping_) {
        const auto left = next_sweep - Clock::Real().Now();
        if (left <= left.zero()) break;
        changed_.WaitFor(mutex_, left);
      }
      if (waiting_.empty() && stopping_) return;
      busy_ = true;
      if (!waiting_.empty()) {
        waiting = std::move(waiting_.front());
        waiting_.pop_front();
      }
    }
    if (const std::shared_ptr<const FolderIndex> index = waiting.index.lock()) {
      Wrote(waiting, Write(waiting, *index));
    } else if (Clock::Real().Now() >= next_sweep) {
      next_sweep = Clock::Real().Now() + options_.sweep_every;
      const StatusOr<UniqueFd> folder = Folder(/*make=*/false);
      if (folder.ok()) Sweep(folder->get(), 0).IgnoreError();
    }
  }
}

void SnapshotStore::Wrote(const Waiting& waiting, const Status& status) {
  if (!status.ok()) {
    if (!warned_) {
      LogWarning(absl::StrCat("index snapshots are not kept in ", Printable(folder_), ": ",
                              MessageOf(status), "; after a restart of the daemon, jobs whose ",
                              "folder has changed meanwhile cannot go on"));
    }
    MutexLock lock(mutex_);
    held_.erase(waiting.name);  // to be tried again when it is given again
  }
  warned_ = !status.ok();
}

Status SnapshotStore::Write(const Waiting& waiting, const FolderIndex& index) {
  ASSIGN_OR_RETURN(const UniqueFd folder, Folder(/*make=*/true));
  if (::utimensat(folder.get(), waiting.name.c_str(), kTouch, AT_SYMLINK_NOFOLLOW) == 0)
    return absl::OkStatus();
  RETURN_IF_ERROR(Sweep(folder.get(), SnapshotBytes(waiting.of, index)));
  return WriteFile(folder.get(), waiting, index);
}

Status SnapshotStore::WriteFile(int folder, const Waiting& waiting,
                                const FolderIndex& index) const {
  static std::atomic<uint64_t> number = 0;
  const Clock::Time begin = Clock::Real().Now();
  const std::string unfinished =
      absl::StrCat(std::string(kUnfinished), ::getpid(), "-", WallNanos(), "-", ++number);
  const std::string path = absl::StrCat(folder_, "/", waiting.name);
  const UniqueFd file(::openat(folder, unfinished.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.ok()) return ErrnoStatus(errno, "make a file");
  Status status = EncodeSnapshot(
      waiting.of, index, [&](std::string_view bytes) { return WriteAll(file.get(), bytes, path); });
  if (status.ok() && ::fsync(file.get()) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("fsync ", Printable(path)));
  }
  if (status.ok() && ::renameat(folder, unfinished.c_str(), folder, waiting.name.c_str()) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("rename ", Printable(path)));
  }
  if (!status.ok()) {
    ::unlinkat(folder, unfinished.c_str(), 0);
    return status;
  }
  ::fsync(folder);
  LogInfo(absl::StrCat(
      "index snapshot written dataset=", Printable(waiting.of.path), " samples=", index.size(),
      " ms=",
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::Real().Now() - begin).count(),
      " file=", Printable(path)));
  return absl::OkStatus();
}

bool SnapshotStore::IsHeld(const std::string& name) {
  MutexLock lock(mutex_);
  return held_.contains(name);
}

Status SnapshotStore::Sweep(int folder, uint64_t more) {
  {
    MutexLock lock(mutex_);
    absl::erase_if(held_, [](const auto& each) { return each.second.expired(); });
  }
  const int64_t now = WallNanos();
  const int64_t oldest = now - options_.max_age.count() * kNanos;
  std::vector<File> unused;
  uint64_t bytes = more;
  for (File& file : FilesIn(folder, now)) {
    if (IsHeld(file.name)) {
      ::utimensat(folder, file.name.c_str(), kTouch, AT_SYMLINK_NOFOLLOW);
    } else if (file.used_ns < oldest) {
      ::unlinkat(folder, file.name.c_str(), 0);
      continue;
    } else {
      unused.push_back(file);
    }
    bytes += file.bytes;
  }
  std::sort(unused.begin(), unused.end(),
            [](const File& a, const File& b) { return a.used_ns < b.used_ns; });
  // One that cannot come to be needs no room.
  uint64_t least = bytes;
  for (const File& file : unused) least -= file.bytes;
  const bool fits = more == 0 || least <= options_.max_bytes;
  if (!fits) bytes -= more;
  for (const File& file : unused) {
    if (bytes <= options_.max_bytes) break;
    ::unlinkat(folder, file.name.c_str(), 0);
    bytes -= file.bytes;
  }
  if (fits) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("another one of ", more, " bytes beside ", least - more,
                   " bytes that are in use is more than the daemon's setting snapshot_bytes, ",
                   options_.max_bytes));
}

StatusOr<UniqueFd> SnapshotStore::Folder(bool make) const {
  if (make) MakeFolders(folder_);
  UniqueFd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts;
  if (!folder.ok() || ::fstat(folder.get(), &facts) != 0) return ErrnoStatus(errno, "open");
  if (facts.st_uid != ::geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("it belongs to uid ", facts.st_uid, ", not ", ::geteuid(),
                     "; remove it, or set state_dir to a folder of the daemon's own"));
  }
  if ((facts.st_mode & 0077) != 0 && ::fchmod(folder.get(), 0700) != 0) {
    return ErrnoStatus(errno, "chmod to 0700");
  }
  return folder;
}

StatusOr<FolderIndex> SnapshotStore::Load(const SnapshotOf& of,
                                          const std::string& order_fingerprint) {
  ASSIGN_OR_RETURN(const std::string name, NameOf(of, order_fingerprint));
  const StatusOr<UniqueFd> folder = Folder(/*make=*/false);
  if (!folder.ok()) {
    return Status(folder.status().code(),
                  absl::StrCat(Printable(folder_), ": ", MessageOf(folder.status())));
  }
  IndexSnapshot snapshot;
  Status status = ReadAndDecode(folder->get(), name, snapshot);
  if (status.ok() && (snapshot.of != of || snapshot.index.order_fingerprint != order_fingerprint)) {
    status = absl::DataLossError("is of another dataset or order");
  }
  if (status.ok()) return std::move(snapshot.index);
  if (absl::IsDataLoss(status)) ::unlinkat(folder->get(), name.c_str(), 0);
  return Status(status.code(), absl::StrCat("index snapshot ", Printable(folder_), "/", name, " ",
                                            MessageOf(status)));
}

Status SnapshotStore::ReadAndDecode(int folder, const std::string& name,
                                    IndexSnapshot& snapshot) const {
  const UniqueFd file(
      ::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat facts;
  if (!file.ok() || ::fstat(file.get(), &facts) != 0) return ErrnoStatus(errno, "cannot be opened");
  if (!S_ISREG(facts.st_mode)) return absl::DataLossError("is not a regular file");
  const auto size = static_cast<uint64_t>(facts.st_size);
  if (size > options_.max_bytes) {
    return absl::DataLossError(
        absl::StrCat("has ", size, " bytes, more than all may have (snapshot_bytes)"));
  }
  // So that nobody takes it for the least recently used while it is being read.
  ::futimens(file.get(), kTouch);
  const auto bytes = std::make_unique_for_overwrite<char[]>(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.get(), bytes.get() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot be read");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  ASSIGN_OR_RETURN(snapshot, DecodeSnapshot({bytes.get(), done}));
  return absl::OkStatus();
}

}  // namespace loaderd::dataset
