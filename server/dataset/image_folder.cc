// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/image_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <climits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/clock.h"
#include "server/dataset/entry_notes.h"
#include "server/dataset/sha256.h"

namespace loaderd::dataset {
namespace {

constexpr std::array<const char*, 9> kExtensions = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                                    ".pgm", ".tif",  ".tiff", ".webp"};
constexpr int64_t kRacyNs = 2'000'000'000;  // file systems stamp in steps of up to 2 s
constexpr size_t kMaxClassesTold = 20;
constexpr uint64_t kSamplesBetweenChecks = 4096;

}  // namespace

bool IsImageName(std::string_view name) {
  return std::any_of(kExtensions.begin(), kExtensions.end(), [&](std::string_view extension) {
    if (name.size() < extension.size()) return false;
    const std::string_view end = name.substr(name.size() - extension.size());
    return std::equal(end.begin(), end.end(), extension.begin(), [](char a, char b) {
      return absl::ascii_tolower(static_cast<unsigned char>(a)) == b;
    });
  });
}

ImageFolder::ImageFolder(const std::string& path, const Options& options)
    : root_(path),
      printable_path_(Printable(path)),
      roots_(options.roots),
      max_sample_bytes_(options.max_sample_bytes),
      storage_(options.storage) {}

StatusOr<ImageFolder::Indexed> ImageFolder::Index(const std::string& path, const Options& options,
                                                  std::stop_token stop,
                                                  std::atomic<uint64_t>& found) {
  const Clock::Time begin = Clock::Real().Now();
  const int64_t wall_begin = WallNanos();
  StatusOr<ScannedFolder> scanned = ScanFolder(path, {.roots = options.roots.get(),
                                                      .threads = options.index_threads,
                                                      .wanted = &IsImageName,
                                                      .hidden = options.hidden,
                                                      .found = &found,
                                                      .stop = stop});
  if (!scanned.ok()) {
    // ENOTDIR: what was asked for is a file.
    if (absl::IsFailedPrecondition(scanned.status()))
      return absl::InvalidArgumentError(scanned.status().message());
    return std::move(scanned).status();
  }
  std::unique_ptr<ImageFolder> folder(new ImageFolder(path, options));
  State state;
  folder->Take(*std::move(scanned), state);
  RETURN_IF_ERROR(folder->CheckClasses());
  RETURN_IF_ERROR(folder->MakeFingerprint(stop));
  folder->index_seconds_ = std::chrono::duration<double>(Clock::Real().Now() - begin).count();
  const int64_t wall_end = WallNanos();
  state.racy = std::any_of(state.stamps.begin(), state.stamps.end(), [&](const DirStamp& stamp) {
    return stamp.mtime_ns >= wall_begin - kRacyNs && stamp.mtime_ns <= wall_end + kRacyNs;
  });
  return Indexed{std::move(folder), std::move(state)};
}

std::unique_ptr<const ImageFolder> ImageFolder::Restore(const std::string& path,
                                                        const Options& options, FolderIndex index) {
  std::unique_ptr<ImageFolder> folder(new ImageFolder(path, options));
  folder->index_ = std::move(index);
  return folder;
}

void ImageFolder::Take(ScannedFolder scanned, State& state) {
  index_.class_names = std::move(scanned.class_names);
  index_.notes = std::move(scanned.notes);
  uint64_t samples = 0, name_bytes = 0, path_bytes = 0;
  for (const ScannedDir& dir : scanned.dirs) {
    samples += dir.count;
    name_bytes += dir.names.size();
    path_bytes += dir.path.size() + 1;
  }
  index_.dirs.reserve(scanned.dirs.size());
  state.stamps.reserve(scanned.dirs.size());
  index_.dir_paths.reserve(path_bytes);
  index_.names.reserve(name_bytes);
  index_.name_offsets.reserve(samples);
  for (ScannedDir& dir : scanned.dirs) {
    const size_t added = index_.AddDir(dir.path, dir.class_index, dir.names);
    state.stamps.insert(state.stamps.end(), added, dir.stamp);
    dir = {};  // gives its memory back before the next is taken over
  }
}

Status ImageFolder::CheckClasses() const {
  const std::string seen = notes().empty() ? "" : absl::StrCat(". Seen: ", Told(notes()));
  if (class_names().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Couldn't find any class folder in ", printable_path_, seen, "."));
  }
  const std::vector<Dir>& dirs = index_.dirs;
  std::vector<bool> filled(class_names().size());
  for (size_t i = 0; i < dirs.size(); ++i) {
    if (index_.EndOf(i) > dirs[i].first_sample)
      filled[static_cast<size_t>(dirs[i].class_index)] = true;
  }
  std::vector<std::string> empty;
  const auto count = static_cast<size_t>(std::count(filled.begin(), filled.end(), false));
  for (size_t i = 0; i < filled.size() && empty.size() < kMaxClassesTold; ++i) {
    if (!filled[i]) empty.push_back(Printable(class_names()[i]));
  }
  if (count == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      printable_path_, ": Found no valid file for the classes ", absl::StrJoin(empty, ", "),
      count > empty.size() ? absl::StrCat(" and ", count - empty.size(), " more") : "",
      ". Supported extensions are: ", absl::StrJoin(kExtensions, ", "), ", in any case", seen));
}

Status ImageFolder::MakeFingerprint(const std::stop_token& stop) {
  constexpr std::string_view kNul("", 1);
  Sha256 sha;
  sha.Add("loaderd order 1");
  sha.Add(uint64_t{class_names().size()});
  for (const std::string& name : class_names()) {
    sha.Add(name);
    sha.Add(kNul);
  }
  sha.Add(size());
  std::string relative;
  for (size_t d = 0; d < index_.dirs.size(); ++d) {
    const Dir& dir = index_.dirs[d];
    const uint64_t end = index_.EndOf(d);
    for (uint64_t i = dir.first_sample; i < end; ++i) {
      if (i % kSamplesBetweenChecks == 0 && stop.stop_requested()) {
        return absl::CancelledError(absl::StrCat(printable_path_, ": indexing cancelled"));
      }
      relative.assign(index_.PathOf(dir)).push_back('/');
      relative.append(index_.NameOf(dir, i)).push_back('\0');
      sha.Add(relative);
    }
  }
  ASSIGN_OR_RETURN(const std::string digest, sha.Finish());
  index_.order_fingerprint = absl::BytesToHexString(digest);
  return absl::OkStatus();
}

bool ImageFolder::Unchanged(const State& state) const {
  if (state.racy) return false;
  for (size_t i = 0; i < index_.dirs.size(); ++i) {
    const char* relative = index_.PathOf(index_.dirs[i]);
    struct stat status;
    const Status found =
        roots_->Stat(*relative == '\0' ? root_ : absl::StrCat(root_, "/", relative), status);
    if (!found.ok() || StampOf(status) != state.stamps[i]) return false;
  }
  return true;
}

bool ImageFolder::Same(const ImageFolder& other) const {
  return order_fingerprint() == other.order_fingerprint() && root_ == other.root_ &&
         index_.dir_paths == other.index_.dir_paths && notes() == other.notes() &&
         index_.dirs.size() == other.index_.dirs.size() &&
         max_sample_bytes_ == other.max_sample_bytes_ && roots_ == other.roots_;
}

const ImageFolder::Dir& ImageFolder::DirOf(uint64_t index) const {
  assert(index < size());
  // The last that begins at or before it: those without samples begin where the next does.
  const auto after =
      std::upper_bound(index_.dirs.begin(), index_.dirs.end(), index,
                       [](uint64_t at, const Dir& dir) { return at < dir.first_sample; });
  return *std::prev(after);
}

int64_t ImageFolder::label(uint64_t index) const { return DirOf(index).class_index; }

void ImageFolder::SetPath(uint64_t index, std::string& path) const {
  const Dir& dir = DirOf(index);
  path.assign(root_).append(root_ == "/" ? "" : "/");
  path.append(index_.PathOf(dir)).push_back('/');
  path.append(index_.NameOf(dir, index));
}

std::string ImageFolder::PathOf(uint64_t index) const {
  std::string path;
  SetPath(index, path);
  return path;
}

std::string ImageFolder::Name(uint64_t index) const { return Printable(PathOf(index)); }

Status ImageFolder::Read(uint64_t index, ByteBuffer& bytes) const {
  // Kept by the thread: reading asks for no memory.
  static thread_local std::string path;
  SetPath(index, path);
  return storage_.Read(index, [&] { return ReadOnce(path, bytes); });
}

// What to say of a file that was listed and cannot be opened, for the reason `status`.
Status ImageFolder::Missing(const std::string& path, const Status& status) const {
  const StatusOr<UniqueFd> link = roots_->Open(path, O_PATH | O_NOFOLLOW);
  char target[PATH_MAX];
  const ssize_t length = link.ok() ? ::readlinkat(link->get(), "", target, sizeof(target)) : -1;
  if (length < 0) {
    // ENOTDIR: a folder on the way is none any more.
    if (!absl::IsNotFound(status) && !absl::IsFailedPrecondition(status)) return status;
    return absl::NotFoundError(absl::StrCat(Printable(path), ": vanished since indexing"));
  }
  return absl::NotFoundError(absl::StrCat(Printable(path), ": is a dangling link, to ",
                                          Printable({target, static_cast<size_t>(length)}),
                                          ", as seen by the daemon"));
}

Status ImageFolder::ReadOnce(const std::string& path, ByteBuffer& bytes) const {
  StatusOr<UniqueFd> opened = roots_->Open(path, O_RDONLY);
  if (!opened.ok()) {
    const Status& status = opened.status();
    if (IsStorageFault(status) || Roots::Refused(status) || absl::IsPermissionDenied(status))
      return status;
    return Missing(path, status);
  }
  const int fd = opened->get();
  struct stat status;
  if (::fstat(fd, &status) != 0) return FileStatus(errno, Printable(path));
  if (!S_ISREG(status.st_mode))
    return absl::DataLossError(absl::StrCat(Printable(path), ": is not a regular file"));
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size == 0) return absl::DataLossError(absl::StrCat(Printable(path), ": is an empty file"));
  if (size > max_sample_bytes_) {
    return absl::DataLossError(absl::StrCat(Printable(path), ": has ", size,
                                            " bytes, more than the ", max_sample_bytes_,
                                            " of the daemon's setting limits.max_sample_bytes"));
  }
  const std::span<uint8_t> out = bytes.Resize(size);
  for (uint64_t done = 0; done < size;) {
    const ssize_t got = ::read(fd, out.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileStatus(errno, Printable(path));
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(Printable(path), ": shrank while it was read, from ",
                                              size, " bytes to ", done));
    }
    done += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

uint64_t ImageFolder::index_bytes() const {
  return sizeof(*this) + root_.capacity() + printable_path_.capacity() + index_.bytes();
}

}  // namespace loaderd::dataset
