// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/entry_notes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/status.h"

namespace loaderd::dataset {
namespace {

constexpr size_t kFirst = 5;

struct Words {
  const char* kind;
  bool taken;
};
constexpr std::array<Words, 7> kWords = {{{"files beside the class folders", false},
                                          {"files without an image's extension", false},
                                          {"hidden entries", false},
                                          {"links that lead back to a folder above them", false},
                                          {"dangling links without an image's extension", false},
                                          {"hidden entries", true},
                                          {"dangling links", true}}};

}  // namespace

void OddityTally::Keep(Kind& kind, std::string path) {
  if (kind.first.size() == kFirst && path >= kind.first.back()) return;
  kind.first.insert(std::upper_bound(kind.first.begin(), kind.first.end(), path), std::move(path));
  if (kind.first.size() > kFirst) kind.first.pop_back();
}

void OddityTally::Add(Oddity oddity, std::string_view dir, std::string_view name) {
  Kind& kind = kinds_[static_cast<size_t>(oddity)];
  ++kind.count;
  std::string path(dir);
  if (!path.empty() && !name.empty()) path.push_back('/');
  Keep(kind, std::move(path.append(name)));
}

void OddityTally::Add(const OddityTally& other) {
  for (size_t i = 0; i < kinds_.size(); ++i) {
    kinds_[i].count += other.kinds_[i].count;
    for (const std::string& path : other.kinds_[i].first) Keep(kinds_[i], path);
  }
}

std::vector<EntryNote> OddityTally::Notes() const {
  std::vector<EntryNote> notes;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].count == 0) continue;
    EntryNote& note = notes.emplace_back(
        EntryNote{.kind = kWords[i].kind, .taken = kWords[i].taken, .count = kinds_[i].count});
    for (const std::string& path : kinds_[i].first) note.first.push_back(Printable(path));
  }
  return notes;
}

std::string Told(const std::vector<EntryNote>& notes) {
  std::string text;
  for (const EntryNote& note : notes) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", note.count, " ", note.kind,
                    note.taken ? " taken as torchvision does (" : " left out (",
                    absl::StrJoin(note.first, ", "),
                    note.count > note.first.size() ? ", ...)" : ")");
  }
  return text;
}

}  // namespace loaderd::dataset
