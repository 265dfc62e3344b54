// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

namespace loaderd::client {
namespace {

std::atomic<uint64_t> generation{1};

}  // namespace

uint64_t ForkGeneration() noexcept { return generation.load(std::memory_order_relaxed); }

// The list of all live descriptors. fork() runs with its lock held, so that the child finds the
// list whole.
class ForkRegistry {
 public:
  static ForkRegistry& Get() {
    // Never destroyed: sessions may live in other objects with static storage.
    static ForkRegistry* const registry = new ForkRegistry;
    return *registry;
  }

  void Open(GuardedFd* guarded, const std::function<int()>& open) {
    const std::lock_guard lock(mutex_);
    const int fd = open();
    if (fd < 0) {
      guarded->error_ = errno;
      return;
    }
    guarded->fd_ = fd;
    guarded->next_ = first_;
    if (first_ != nullptr) first_->previous_ = guarded;
    first_ = guarded;
  }

  void Close(GuardedFd* guarded) {
    const std::lock_guard lock(mutex_);
    const int fd = guarded->fd_.exchange(-1);
    if (fd < 0) return;
    Unlink(guarded);
    ::close(fd);
  }

 private:
  ForkRegistry() { ::pthread_atfork(&BeforeFork, &InParent, &InChild); }

  void Unlink(GuardedFd* guarded) {
    if (guarded->previous_ != nullptr) guarded->previous_->next_ = guarded->next_;
    if (guarded->next_ != nullptr) guarded->next_->previous_ = guarded->previous_;
    if (first_ == guarded) first_ = guarded->next_;
    guarded->previous_ = guarded->next_ = nullptr;
  }

  static void BeforeFork() { Get().mutex_.lock(); }
  static void InParent() { Get().mutex_.unlock(); }
  static void InChild() {
    ForkRegistry& registry = Get();
    generation.fetch_add(1);
    while (registry.first_ != nullptr) {
      GuardedFd* const guarded = registry.first_;
      ::close(guarded->fd_.exchange(-1));
      registry.Unlink(guarded);
    }
    registry.mutex_.unlock();
  }

  std::mutex mutex_;
  GuardedFd* first_ = nullptr;
};

GuardedFd::GuardedFd(const std::function<int()>& open) { ForkRegistry::Get().Open(this, open); }

GuardedFd::~GuardedFd() { Close(); }

void GuardedFd::Close() {
  if (fd_.load(std::memory_order_relaxed) >= 0) ForkRegistry::Get().Close(this);
}

}  // namespace loaderd::client
