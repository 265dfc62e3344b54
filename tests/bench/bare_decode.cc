// SPDX-License-Identifier: Apache-2.0
// bare_decode FOLDER THREADS SECONDS: decodes the folder's JPEG files to RGB with libjpeg-turbo,
// over and over, and nothing else. What a loader's rate is measured against. Files are read into
// memory before. Prints one JSON document.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>
// jpeglib.h wants FILE and size_t declared before it.
#include <jpeglib.h>

namespace {

using Bytes = std::vector<unsigned char>;
using std::chrono::steady_clock;

struct JumpingErrors {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
};

[[noreturn]] void Jump(j_common_ptr info) {
  std::longjmp(reinterpret_cast<JumpingErrors*>(info->err)->jump, 1);
}
void Silent(j_common_ptr) {}

// One thread's decoder. False: no JPEG that libjpeg-turbo turns into RGB.
class Decoder {
 public:
  Decoder() {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = Jump;
    errors_.manager.output_message = Silent;
    jpeg_create_decompress(&info_);
  }
  ~Decoder() { jpeg_destroy_decompress(&info_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool Decode(const Bytes& file) {
    if (setjmp(errors_.jump) != 0) {
      jpeg_abort_decompress(&info_);
      return false;
    }
    jpeg_mem_src(&info_, file.data(), file.size());
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    const size_t row_bytes = size_t{info_.output_width} * 3;
    pixels_.resize(row_bytes * info_.output_height);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels_.data() + row_bytes * info_.output_scanline;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

 private:
  jpeg_decompress_struct info_ = {};
  JumpingErrors errors_ = {};
  std::vector<JSAMPLE> pixels_;
};

std::vector<Bytes> ReadFolder(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> files;
  Decoder decoder;
  for (const auto& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    Bytes bytes{std::istreambuf_iterator<char>(stream), {}};
    if (decoder.Decode(bytes)) files.push_back(std::move(bytes));
  }
  return files;
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int Run(const std::string& folder, unsigned threads, double seconds) {
  const std::vector<Bytes> files = ReadFolder(folder);
  if (files.empty()) {
    std::fprintf(stderr, "bare_decode: %s: no file that decodes\n", folder.c_str());
    return 1;
  }
  std::atomic<uint64_t> taken = 0;
  std::atomic<uint64_t> decoded = 0;
  const double cpu_before = CpuSeconds();
  const auto begin = steady_clock::now();
  const auto end = begin + std::chrono::duration_cast<steady_clock::duration>(
                               std::chrono::duration<double>(seconds));
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < threads; ++i) {
      workers.emplace_back([&] {
        Decoder decoder;
        while (steady_clock::now() < end) {
          if (decoder.Decode(files[taken++ % files.size()])) ++decoded;
        }
      });
    }
  }
  const double elapsed = std::chrono::duration<double>(steady_clock::now() - begin).count();
  const double cpu = CpuSeconds() - cpu_before;
  const auto images = static_cast<double>(decoded.load());
  std::printf(
      "{\"files\": %zu, \"threads\": %u, \"seconds\": %.3f, \"images\": %.0f, \"images_per_s\": "
      "%.2f, "
      "\"cpu_s_per_1000_images\": %.4f}\n",
      files.size(), threads, elapsed, images, images / elapsed, cpu * 1000 / images);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const long threads = argc == 4 ? std::strtol(argv[2], nullptr, 10) : 0;
  const double seconds = argc == 4 ? std::strtod(argv[3], nullptr) : 0;
  if (threads < 1 || threads > 1024 || !(seconds > 0 && seconds <= 3600)) {
    std::fprintf(stderr,
                 "usage: bare_decode FOLDER THREADS SECONDS   (1 to 1024 threads, up to 3600 s)\n");
    return 2;
  }
  try {
    return Run(argv[1], static_cast<unsigned>(threads), seconds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bare_decode: %s\n", error.what());
    return 1;
  }
}
