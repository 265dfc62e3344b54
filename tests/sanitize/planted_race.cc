// SPDX-License-Identifier: Apache-2.0
// planted_race [race | errors]: two threads count; with `race`, one of them does so without the
// lock; with `errors`, they also make error texts, which a library does that is not built for the
// sanitizer.
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <thread>

#include "server/base/mutex.h"
#include "server/base/status.h"

namespace {

struct Counter {
  loaderd::Mutex mutex;
  int value = 0;
};

void CountLocked(Counter& counter) {
  for (int i = 0; i < 1000; ++i) {
    loaderd::MutexLock lock(counter.mutex);
    ++counter.value;
  }
}

void CountUnlocked(Counter& counter) {
  for (int i = 0; i < 1000; ++i) ++counter.value;
}

void MakeErrors() {
  for (int i = 0; i < 1000; ++i) static_cast<void>(loaderd::ErrnoStatus(ENOENT, "open"));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 2 ? argv[1] : "";
  const bool race = mode == "race";
  if (mode == "errors") {
    std::jthread one(MakeErrors);
    std::jthread other(MakeErrors);
  }
  Counter counter;
  {
    std::jthread one([&] { CountLocked(counter); });
    std::jthread other([&] { race ? CountUnlocked(counter) : CountLocked(counter); });
  }
  std::printf("%d\n", counter.value);
}
