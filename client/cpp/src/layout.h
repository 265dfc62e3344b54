// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/src/proto_codec.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

// What Opened said, checked: every field of a batch of up to capacity() samples lies within its
// slot, every slot within the segment. Holds the C structs that the user sees; not movable, for
// they point into it.
class Layout {
 public:
  // `inline_delivery`: there is no segment.
  static Status Check(const Opened& opened, bool inline_delivery);
  // Whether batches of both lie and count alike, so that one session can go on where another ended.
  // The number of slots may differ.
  static bool Same(const Opened& one, const Opened& other);
  // Of an Opened that Check found good.
  Layout(Opened opened, bool inline_delivery, std::string socket);
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  const Opened& opened() const { return opened_; }
  const loaderd_opened& facts() const { return facts_; }
  uint32_t capacity() const { return capacity_; }
  // From the slot's begin to the end of the last field's row `count`; 0 for no rows.
  uint64_t BytesOf(uint32_t count) const;

 private:
  const Opened opened_;
  const std::string socket_;
  uint32_t capacity_ = 0;
  std::vector<loaderd_field> fields_;
  loaderd_opened facts_ = {};
};

}  // namespace loaderd::client
