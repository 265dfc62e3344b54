// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/index_snapshot.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/dataset/sha256.h"

namespace loaderd::dataset {
namespace {

constexpr size_t kPiece = 1 << 20;  // small fields are given on in pieces of about this size
constexpr size_t kFingerprintDigits = 2 * Sha256::kBytes;

// Either writes and hashes, or only counts.
class Writer {
 public:
  using Write = absl::FunctionRef<Status(std::string_view)>;
  explicit Writer(const Write* write) : write_(write) {}

  void Raw(std::string_view bytes) {
    size_ += bytes.size();
    if (write_ == nullptr || !written_.ok()) return;
    if (bytes.size() < kPiece) {
      held_.append(bytes);
      if (held_.size() >= kPiece) Flush();
    } else {
      Flush();
      Give(bytes);
    }
  }
  void Number(uint64_t value) {
    char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
    Raw({bytes, sizeof bytes});
  }
  void Text(std::string_view text) {
    Number(text.size());
    Raw(text);
  }
  void Texts(const std::vector<std::string>& texts) {
    Number(texts.size());
    for (const std::string& text : texts) Text(text);
  }

  Status Finish() {
    Flush();
    RETURN_IF_ERROR(written_);
    ASSIGN_OR_RETURN(const std::string digest, sha_.Finish());
    return (*write_)(digest);
  }
  uint64_t size() const { return size_ + Sha256::kBytes; }

 private:
  void Flush() {
    Give(held_);
    held_.clear();
  }
  void Give(std::string_view bytes) {
    sha_.Add(bytes);
    if (written_.ok() && !bytes.empty()) written_ = (*write_)(bytes);
  }

  const Write* const write_;
  Sha256 sha_;
  Status written_;
  std::string held_;
  uint64_t size_ = 0;
};

void Put(const SnapshotOf& of, const FolderIndex& index, Writer& out) {
  out.Raw(kSnapshotMagic);
  out.Text(of.path);
  out.Number(static_cast<uint64_t>(of.hidden));
  out.Text(index.order_fingerprint);
  out.Texts(index.class_names);
  out.Number(index.dirs.size());
  for (size_t i = 0; i < index.dirs.size(); ++i) {
    out.Text(index.PathOf(index.dirs[i]));
    out.Number(static_cast<uint64_t>(index.dirs[i].class_index));
    out.Text(index.NamesOf(i));
  }
  out.Number(index.notes.size());
  for (const EntryNote& note : index.notes) {
    out.Text(note.kind);
    out.Number(note.taken ? 1 : 0);
    out.Number(note.count);
    out.Texts(note.first);
  }
}

// A name that stays in its folder.
bool IsName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

// `path` is names below the folder `top`, or that folder.
bool IsPathBelow(std::string_view path, std::string_view top) {
  if (path.substr(0, path.find('/')) != top) return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (!IsName(path.substr(at, end - at))) return false;
    at = end + 1;
  }
  return true;
}

// Names in rising order, each with a NUL behind it.
bool AreNames(std::string_view names) {
  std::string_view before;
  for (size_t at = 0; at < names.size();) {
    const size_t end = names.find('\0', at);
    if (end == std::string_view::npos) return false;
    const std::string_view name = names.substr(at, end - at);
    if (!IsName(name) || name <= before) return false;
    before = name;
    at = end + 1;
  }
  return true;
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  StatusOr<IndexSnapshot> Read() {
    IndexSnapshot snapshot;
    rest_.remove_prefix(kSnapshotMagic.size());
    snapshot.of.path = std::string(Text());
    const uint64_t hidden = Number();
    Check(hidden <= static_cast<uint64_t>(HiddenRule::kSkip), "no rule for hidden entries");
    snapshot.of.hidden = static_cast<HiddenRule>(hidden);
    FolderIndex& index = snapshot.index;
    index.order_fingerprint = std::string(Text());
    Check(index.order_fingerprint.size() == kFingerprintDigits &&
              std::all_of(index.order_fingerprint.begin(), index.order_fingerprint.end(),
                          [](unsigned char c) { return absl::ascii_isxdigit(c); }),
          "no order fingerprint");
    Classes(index);
    Dirs(index);
    Notes(index);
    Check(rest_.empty(), "bytes that belong to nothing");
    if (fault_ != nullptr) return absl::DataLossError(absl::StrCat("holds ", fault_));
    return snapshot;
  }

 private:
  void Check(bool holds, const char* fault) {
    if (!holds && fault_ == nullptr) fault_ = fault;
  }
  bool ok() const { return fault_ == nullptr; }

  uint64_t Number() {
    if (rest_.size() < 8) {
      Check(false, "less than it says");
      return 0;
    }
    uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(8);
    return value;
  }
  std::string_view Text() {
    const uint64_t size = Number();
    Check(size <= rest_.size(), "less than it says");
    if (!ok()) return {};
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }
  // Of elements that take at least `least` bytes each; 0 once there was a fault.
  uint64_t Count(uint64_t least) {
    const uint64_t count = Number();
    Check(count <= rest_.size() / least, "less than it says");
    return ok() ? count : 0;
  }

  void Classes(FolderIndex& index) {
    const uint64_t count = Count(8);
    index.class_names.reserve(count);
    for (uint64_t i = 0; i < count && ok(); ++i) {
      index.class_names.emplace_back(Text());
      Check(IsName(index.class_names[i]) &&
                (i == 0 || index.class_names[i - 1] < index.class_names[i]),
            "classes that no folder has");
    }
  }

  void Dirs(FolderIndex& index) {
    const uint64_t count = Count(24);
    index.dirs.reserve(count);
    index.names.reserve(rest_.size());  // nearly all of it is names
    for (uint64_t i = 0; i < count && ok(); ++i) {
      const std::string_view path = Text();
      const uint64_t number = Number();
      const std::string_view names = Text();
      const bool root = i == 0 && path.empty() && number == ~uint64_t{0} && names.empty();
      const bool below = i > 0 && number < index.class_names.size() &&
                         IsPathBelow(path, index.class_names[number]);
      Check((root || below) && AreNames(names), "a directory that no folder has");
      if (ok()) index.AddDir(path, static_cast<int64_t>(number), names);
    }
    Check(!index.dirs.empty() && index.size() > 0, "no samples");
  }

  void Notes(FolderIndex& index) {
    const uint64_t count = Count(32);
    for (uint64_t i = 0; i < count && ok(); ++i) {
      EntryNote& note = index.notes.emplace_back();
      note.kind = Printable(Text());
      note.taken = Number() != 0;
      note.count = Number();
      const uint64_t first = Count(8);
      for (uint64_t n = 0; n < first && ok(); ++n) note.first.push_back(Printable(Text()));
    }
  }

  std::string_view rest_;
  const char* fault_ = nullptr;  // the first
};

}  // namespace

Status EncodeSnapshot(const SnapshotOf& of, const FolderIndex& index,
                      absl::FunctionRef<Status(std::string_view)> write) {
  Writer out(&write);
  Put(of, index, out);
  return out.Finish();
}

uint64_t SnapshotBytes(const SnapshotOf& of, const FolderIndex& index) {
  Writer out(nullptr);
  Put(of, index, out);
  return out.size();
}

StatusOr<IndexSnapshot> DecodeSnapshot(std::string_view bytes) {
  if (!bytes.starts_with(kSnapshotMagic)) {
    return absl::DataLossError("is no index snapshot of this version");
  }
  if (bytes.size() < kSnapshotMagic.size() + Sha256::kBytes) {
    return absl::DataLossError("is cut short");
  }
  const std::string_view body = bytes.substr(0, bytes.size() - Sha256::kBytes);
  Sha256 sha;
  sha.Add(body);
  ASSIGN_OR_RETURN(const std::string digest, sha.Finish());
  if (digest != bytes.substr(body.size())) {
    return absl::DataLossError("is cut short or damaged: its checksum does not hold");
  }
  return Reader(body).Read();
}

}  // namespace loaderd::dataset
