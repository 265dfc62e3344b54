// SPDX-License-Identifier: Apache-2.0
// walk FOLDER THREADS: lists an image folder and asks for the state of each entry (getdents64 and
// statx) and nothing else: what indexing one is held against. The threads share the folder's
// folders. Prints one JSON document.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Counts {
  uint64_t files = 0;
  uint64_t name_bytes = 0;
};

// Calls `visit` with each entry's name and state, links followed; what cannot be read is left out.
template <typename Visit>
void ForEachEntry(const std::string& folder, Visit visit) {
  DIR* stream = opendir(folder.c_str());
  if (stream == nullptr) return;
  while (const dirent* entry = readdir(stream)) {
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    struct stat status;
    if (fstatat(dirfd(stream), entry->d_name, &status, 0) == 0) visit(entry->d_name, status);
  }
  closedir(stream);
}

void Walk(const std::string& folder, Counts& counts) {
  ForEachEntry(folder, [&](const char* name, const struct stat& status) {
    if (S_ISDIR(status.st_mode)) {
      Walk(folder + "/" + name, counts);
    } else {
      ++counts.files;
      counts.name_bytes += std::strlen(name);
    }
  });
}

int Run(const std::string& root, unsigned threads) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> folders;
  ForEachEntry(root, [&](const char* name, const struct stat& status) {
    if (S_ISDIR(status.st_mode)) folders.push_back(root + "/" + name);
  });
  std::atomic<size_t> taken = 0;
  std::atomic<uint64_t> files = 0;
  std::atomic<uint64_t> name_bytes = 0;
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < threads; ++i) {
      workers.emplace_back([&] {
        Counts counts;
        for (size_t next = taken++; next < folders.size(); next = taken++) {
          Walk(folders[next], counts);
        }
        files += counts.files;
        name_bytes += counts.name_bytes;
      });
    }
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  std::printf(
      "{\"folders\": %zu, \"files\": %llu, \"name_bytes\": %llu, \"threads\": %u, \"seconds\": "
      "%.4f}\n",
      folders.size(), static_cast<unsigned long long>(files.load()),
      static_cast<unsigned long long>(name_bytes.load()), threads, elapsed.count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const long threads = argc == 3 ? std::strtol(argv[2], nullptr, 10) : 0;
  if (threads < 1 || threads > 1024) {
    std::fprintf(stderr, "usage: walk FOLDER THREADS   (1 to 1024 threads)\n");
    return 2;
  }
  try {
    return Run(argv[1], static_cast<unsigned>(threads));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "walk: %s\n", error.what());
    return 1;
  }
}
