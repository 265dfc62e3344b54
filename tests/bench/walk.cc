// SPDX-License-Identifier: Apache-2.0
// walk MODE FOLDER THREADS: lists an image folder and nothing else: what indexing one is held
// against. MODE stat asks for the state of each entry (getdents64 and a stat); names does so only
// where the listing does not tell a file or a folder. The threads share the folder's folders.
// Prints one JSON document.
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

enum class Mode { kStat, kNames };

struct Counts {
  uint64_t files = 0;
  uint64_t name_bytes = 0;
};

// Calls `visit` with each entry's name and whether it is a folder, links followed; what cannot be
// read is left out.
template <typename Visit>
void ForEachEntry(Mode mode, const std::string& folder, Visit visit) {
  DIR* stream = opendir(folder.c_str());
  if (stream == nullptr) return;
  while (const dirent* entry = readdir(stream)) {
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    const bool told = entry->d_type == DT_REG || entry->d_type == DT_DIR;
    struct stat status;
    if (mode == Mode::kNames && told) {
      visit(entry->d_name, entry->d_type == DT_DIR);
    } else if (fstatat(dirfd(stream), entry->d_name, &status, 0) == 0) {
      visit(entry->d_name, S_ISDIR(status.st_mode));
    }
  }
  closedir(stream);
}

void Walk(Mode mode, const std::string& folder, Counts& counts) {
  ForEachEntry(mode, folder, [&](const char* name, bool is_folder) {
    if (is_folder) {
      Walk(mode, folder + "/" + name, counts);
    } else {
      ++counts.files;
      counts.name_bytes += std::strlen(name);
    }
  });
}

int Run(Mode mode, const std::string& root, unsigned threads) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> folders;
  ForEachEntry(mode, root, [&](const char* name, bool is_folder) {
    if (is_folder) folders.push_back(root + "/" + name);
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
          Walk(mode, folders[next], counts);
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
  const std::string mode = argc == 4 ? argv[1] : "";
  const long threads = argc == 4 ? std::strtol(argv[3], nullptr, 10) : 0;
  if ((mode != "stat" && mode != "names") || threads < 1 || threads > 1024) {
    std::fprintf(stderr, "usage: walk stat|names FOLDER THREADS   (1 to 1024 threads)\n");
    return 2;
  }
  try {
    return Run(mode == "stat" ? Mode::kStat : Mode::kNames, argv[2],
               static_cast<unsigned>(threads));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "walk: %s\n", error.what());
    return 1;
  }
}
