// SPDX-License-Identifier: Apache-2.0
// planted_race [race]: two threads count; with `race`, one of them does so without the lock.
#include <cstdio>
#include <string_view>
#include <thread>

#include "server/base/mutex.h"

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

}  // namespace

int main(int argc, char** argv) {
  const bool race = argc == 2 && std::string_view(argv[1]) == "race";
  Counter counter;
  {
    std::jthread one([&] { CountLocked(counter); });
    std::jthread other([&] { race ? CountUnlocked(counter) : CountLocked(counter); });
  }
  std::printf("%d\n", counter.value);
}
