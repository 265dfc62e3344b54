// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/dataset/dataset.h"

namespace loaderd::dataset {

// What a folder holds besides plain samples.
enum class Oddity {
  kBesideClasses,   // a file in the root
  kExtension,       // no image by its name
  kHidden,          // left out by HiddenRule::kSkip
  kLinkLoop,        // a link to a directory above it: not entered
  kDanglingLink,    // no image by its name
  kHiddenTaken,     // hidden, and a class or a sample all the same
  kDanglingSample,  // an image by its name
};

// Counts oddities and keeps the first few names of each kind, in byte order, whatever the order in
// which they are added. Not thread-safe.
class OddityTally {
 public:
  void Add(Oddity oddity, std::string_view dir, std::string_view name);
  void Add(const OddityTally& other);
  // Those that there are, in the order of the enumeration.
  std::vector<EntryNote> Notes() const;

 private:
  struct Kind {
    uint64_t count = 0;
    std::vector<std::string> first;  // sorted
  };
  static void Keep(Kind& kind, std::string path);

  std::array<Kind, 7> kinds_;
};

// "3 hidden entries left out (.DS_Store, c0/.DS_Store, ...); ..."; empty when there is none.
std::string Told(const std::vector<EntryNote>& notes);

}  // namespace loaderd::dataset
