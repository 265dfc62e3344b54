// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/image_folder.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/clock.h"
#include "server/dataset/entry_notes.h"

namespace loaderd::dataset {
namespace {

constexpr std::array<const char*, 9> kExtensions = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                                    ".pgm", ".tif",  ".tiff", ".webp"};
constexpr int64_t kRacyNs = 2'000'000'000;  // file systems stamp in steps of up to 2 s
constexpr size_t kMaxClassesTold = 20;
constexpr uint64_t kSamplesBetweenChecks = 4096;

class Sha256 {
 public:
  Sha256()
      : ok_(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1) {}
  void Add(std::string_view bytes) {
    ok_ = ok_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
  }
  void Add(uint64_t value) {
    char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
    Add(std::string_view(bytes, 8));
  }
  StatusOr<std::string> Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (!ok_ || EVP_DigestFinal_ex(context_.get(), digest, &size) != 1) {
      return absl::InternalError("libcrypto made no SHA-256");
    }
    return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_{EVP_MD_CTX_new()};
  bool ok_;
};

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

void ImageFolder::Take(ScannedFolder scanned, State& state) {
  class_names_ = std::move(scanned.class_names);
  notes_ = std::move(scanned.notes);
  uint64_t samples = 0, name_bytes = 0, path_bytes = 0;
  for (const ScannedDir& dir : scanned.dirs) {
    samples += dir.count;
    name_bytes += dir.names.size();
    path_bytes += dir.path.size() + 1;
  }
  dirs_.reserve(scanned.dirs.size());
  state.stamps.reserve(scanned.dirs.size());
  dir_paths_.reserve(path_bytes);
  names_.reserve(name_bytes);
  name_offsets_.reserve(samples);
  for (ScannedDir& dir : scanned.dirs) {
    const uint64_t path_begin = dir_paths_.size();
    dir_paths_.append(dir.path).push_back('\0');
    const auto begin_dir = [&] {
      dirs_.push_back({name_offsets_.size(), names_.size(), path_begin, dir.class_index});
      state.stamps.push_back(dir.stamp);
    };
    begin_dir();
    for (size_t at = 0; at < dir.names.size();) {
      const size_t size = std::strlen(dir.names.c_str() + at) + 1;
      // Offsets have 32 bits: a directory with more than 4 GiB of names goes on as another one.
      if (names_.size() - dirs_.back().names_begin > UINT32_MAX) begin_dir();
      name_offsets_.push_back(static_cast<uint32_t>(names_.size() - dirs_.back().names_begin));
      names_.append(dir.names, at, size);
      at += size;
    }
    dir = {};  // gives its memory back before the next is taken over
  }
}

Status ImageFolder::CheckClasses() const {
  const std::string seen = notes_.empty() ? "" : absl::StrCat(". Seen: ", Told(notes_));
  if (class_names_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Couldn't find any class folder in ", printable_path_, seen, "."));
  }
  std::vector<bool> filled(class_names_.size());
  for (size_t i = 0; i < dirs_.size(); ++i) {
    const uint64_t end = i + 1 < dirs_.size() ? dirs_[i + 1].first_sample : size();
    if (end > dirs_[i].first_sample) filled[static_cast<size_t>(dirs_[i].class_index)] = true;
  }
  std::vector<std::string> empty;
  const auto count = static_cast<size_t>(std::count(filled.begin(), filled.end(), false));
  for (size_t i = 0; i < filled.size() && empty.size() < kMaxClassesTold; ++i) {
    if (!filled[i]) empty.push_back(Printable(class_names_[i]));
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
  sha.Add(uint64_t{class_names_.size()});
  for (const std::string& name : class_names_) {
    sha.Add(name);
    sha.Add(kNul);
  }
  sha.Add(size());
  std::string relative;
  for (size_t d = 0; d < dirs_.size(); ++d) {
    const uint64_t end = d + 1 < dirs_.size() ? dirs_[d + 1].first_sample : size();
    for (uint64_t i = dirs_[d].first_sample; i < end; ++i) {
      if (i % kSamplesBetweenChecks == 0 && stop.stop_requested()) {
        return absl::CancelledError(absl::StrCat(printable_path_, ": indexing cancelled"));
      }
      relative.assign(dir_paths_.c_str() + dirs_[d].path_begin).push_back('/');
      relative.append(names_.c_str() + dirs_[d].names_begin + name_offsets_[i]).push_back('\0');
      sha.Add(relative);
    }
  }
  ASSIGN_OR_RETURN(order_fingerprint_, sha.Hex());
  return absl::OkStatus();
}

bool ImageFolder::Unchanged(const State& state) const {
  if (state.racy) return false;
  for (size_t i = 0; i < dirs_.size(); ++i) {
    const char* relative = dir_paths_.c_str() + dirs_[i].path_begin;
    struct stat status;
    const Status found =
        roots_->Stat(*relative == '\0' ? root_ : absl::StrCat(root_, "/", relative), status);
    if (!found.ok() || StampOf(status) != state.stamps[i]) return false;
  }
  return true;
}

bool ImageFolder::Same(const ImageFolder& other) const {
  return order_fingerprint_ == other.order_fingerprint_ && root_ == other.root_ &&
         dir_paths_ == other.dir_paths_ && notes_ == other.notes_ &&
         dirs_.size() == other.dirs_.size() && max_sample_bytes_ == other.max_sample_bytes_ &&
         roots_ == other.roots_;
}

const ImageFolder::Dir& ImageFolder::DirOf(uint64_t index) const {
  assert(index < size());
  // The last that begins at or before it: those without samples begin where the next does.
  const auto after =
      std::upper_bound(dirs_.begin(), dirs_.end(), index,
                       [](uint64_t at, const Dir& dir) { return at < dir.first_sample; });
  return *std::prev(after);
}

int64_t ImageFolder::label(uint64_t index) const { return DirOf(index).class_index; }

void ImageFolder::SetPath(uint64_t index, std::string& path) const {
  const Dir& dir = DirOf(index);
  path.assign(root_).append(root_ == "/" ? "" : "/");
  path.append(dir_paths_.c_str() + dir.path_begin).push_back('/');
  path.append(names_.c_str() + dir.names_begin + name_offsets_[index]);
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
  uint64_t bytes = sizeof(*this) + root_.capacity() + printable_path_.capacity() +
                   dir_paths_.capacity() + names_.capacity() + dirs_.capacity() * sizeof(Dir) +
                   name_offsets_.capacity() * sizeof(uint32_t) +
                   class_names_.capacity() * sizeof(std::string);
  for (const std::string& name : class_names_) {
    if (name.capacity() > std::string().capacity()) bytes += name.capacity();
  }
  return bytes;
}

}  // namespace loaderd::dataset
