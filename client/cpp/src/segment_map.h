// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "client/cpp/src/patience.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

// A session's segment in this process's memory: shared with the daemon, writable, unmapped by the
// destructor.
class SegmentMap {
 public:
  // Hands `token` in on `socket` (the segment socket), takes the memfd, checks its seals and that
  // it has `bytes` bytes, maps it and closes it. The kernel's seals make sure that no access to the
  // mapping can ever fault for a shrunk file.
  static Status Fetch(const std::string& socket, const std::string& token, uint64_t bytes,
                      Patience* patience, std::unique_ptr<SegmentMap>* map);
  ~SegmentMap();
  SegmentMap(const SegmentMap&) = delete;
  SegmentMap& operator=(const SegmentMap&) = delete;

  uint8_t* data() const { return data_; }

 private:
  SegmentMap(uint8_t* data, size_t size) : data_(data), size_(size) {}
  static Status Map(int fd, uint64_t bytes, std::unique_ptr<SegmentMap>* map);

  uint8_t* const data_;
  const size_t size_;
};

}  // namespace loaderd::client
