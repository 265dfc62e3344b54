// SPDX-License-Identifier: Apache-2.0
// After fork(2) a child must not keep a session alive: its copies of our descriptors are closed
// before fork returns in it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace loaderd::client {

// Rises in a forked child. What was made under another number belongs to the parent.
uint64_t ForkGeneration() noexcept;

// A descriptor that a forked child loses at once. It is opened and closed under the lock that fork
// takes, so no child ever sees one that is not registered, nor closes a number that has since been
// given to somebody else.
class GuardedFd {
 public:
  // `open` returns a descriptor, or -1 with errno set; it must not block.
  explicit GuardedFd(const std::function<int()>& open);
  ~GuardedFd();
  GuardedFd(const GuardedFd&) = delete;
  GuardedFd& operator=(const GuardedFd&) = delete;

  int get() const { return fd_.load(std::memory_order_relaxed); }  // -1 in a forked child
  bool ok() const { return get() >= 0; }
  int error() const { return error_; }  // errno of a failed open
  void Close();

 private:
  friend class ForkRegistry;
  std::atomic<int> fd_{-1};
  int error_ = 0;
  GuardedFd* previous_ = nullptr;  // under the registry's lock, as is next_
  GuardedFd* next_ = nullptr;
};

}  // namespace loaderd::client
