// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/byte_buffer.h"
#include "server/base/status.h"

namespace loaderd::dataset {

// Entries of a folder that its reader may want to know of.
struct EntryNote {
  std::string kind;    // "hidden entries"
  bool taken = false;  // they are classes or samples all the same
  uint64_t count = 0;
  std::vector<std::string> first = {};  // a few, relative to the root, printable, in byte order

  friend bool operator==(const EntryNote&, const EntryNote&) = default;
};

// Of all reads of a dataset.
struct StorageCounts {
  uint64_t retries = 0;   // further tries after an error that may pass
  uint64_t failures = 0;  // reads given up
};

// Samples by index: sample index -> encoded bytes + label. Opened once, immutable, shared by all
// sessions that read it; every method is thread-safe. Holds no descriptor but what its kind
// documents.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual uint64_t size() const = 0;
  virtual int64_t label(uint64_t index) const = 0;
  // Reads the encoded bytes of sample `index` < size() into `bytes`. Blocks on storage; at most
  // open, stat, read and close as system calls, one descriptor while it runs. A data fault (gone,
  // no right, empty, longer than the limit) is an error whose message has Name(index) and the
  // reason; so is an error of the storage that stayed over some tries (IsStorageFault says which).
  virtual Status Read(uint64_t index, ByteBuffer& bytes) const = 0;
  // Where the sample comes from, printable, for messages.
  virtual std::string Name(uint64_t index) const = 0;

  virtual const std::vector<std::string>& class_names() const = 0;
  // SHA-256 in hex over class names and relative sample names in order; no times, no root.
  virtual const std::string& order_fingerprint() const = 0;
  virtual const std::string& path() const = 0;  // printable
  virtual std::string_view kind() const = 0;    // "image_folder"
  virtual uint64_t index_bytes() const = 0;     // memory that the index takes, names included
  virtual double index_seconds() const = 0;
  // What was left out, and what was taken though it looks odd.
  virtual const std::vector<EntryNote>& notes() const {
    static const std::vector<EntryNote> none;
    return none;
  }
  virtual StorageCounts storage() const { return {}; }
};

}  // namespace loaderd::dataset
