// SPDX-License-Identifier: Apache-2.0
// limit MODE SAMPLES THREADS SECONDS: decodes JPEG files to RGB with libjpeg-turbo, over and over,
// and nothing else: what every loader is held against. SAMPLES is a text file with a line for each
// sample, "TOP LEFT HEIGHT WIDTH PATH". MODE full decodes whole images; crop decodes no more than
// the box needs: its columns of iMCUs and one of margin on each side, the rows above skipped, none
// read below. Files are read into memory before. Prints one JSON document.
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>
// jpeglib.h wants FILE and size_t declared before it.
#include <jpeglib.h>

namespace {

using Bytes = std::vector<unsigned char>;
using std::chrono::steady_clock;

enum class Mode { kFull, kCrop };

struct Box {
  unsigned top = 0;
  unsigned left = 0;
  unsigned height = 0;
  unsigned width = 0;
};

struct Sample {
  Box box;
  const Bytes* file = nullptr;
};

struct JumpingErrors {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
};

[[noreturn]] void Jump(j_common_ptr info) {
  std::longjmp(reinterpret_cast<JumpingErrors*>(info->err)->jump, 1);
}
void Silent(j_common_ptr) {}

// One thread's decoder. False: no JPEG that libjpeg-turbo turns into RGB, or a box outside it.
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

  bool Decode(const Sample& sample, Mode mode) {
    if (setjmp(errors_.jump) != 0) {
      jpeg_abort_decompress(&info_);
      return false;
    }
    jpeg_mem_src(&info_, sample.file->data(), sample.file->size());
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    if (mode == Mode::kFull) {
      ReadRows(info_.output_height);
      jpeg_finish_decompress(&info_);
      return true;
    }
    const bool fits = DecodeBox(sample.box);
    jpeg_abort_decompress(&info_);
    return fits;
  }

 private:
  bool DecodeBox(const Box& box) {
    const uint64_t right = uint64_t{box.left} + box.width;
    const uint64_t bottom = uint64_t{box.top} + box.height;
    if (box.width == 0 || box.height == 0 || right > info_.output_width ||
        bottom > info_.output_height) {
      return false;
    }
    const unsigned imcu =
        static_cast<unsigned>(info_.num_components == 1 ? 1 : info_.max_h_samp_factor) * DCTSIZE;
    const unsigned first = box.left / imcu;
    const auto end = static_cast<unsigned>((right + imcu - 1) / imcu) + 1;
    JDIMENSION begin_column = first == 0 ? 0 : (first - 1) * imcu;
    JDIMENSION columns = std::min(end * imcu, info_.output_width) - begin_column;
    if (columns < info_.output_width) jpeg_crop_scanline(&info_, &begin_column, &columns);
    if (box.top > 0) jpeg_skip_scanlines(&info_, box.top);
    ReadRows(static_cast<JDIMENSION>(bottom));
    return true;
  }

  void ReadRows(JDIMENSION bottom) {
    const size_t row_bytes = size_t{info_.output_width} * 3;
    const JDIMENSION top = info_.output_scanline;
    pixels_.resize(row_bytes * (bottom - top));
    while (info_.output_scanline < bottom) {
      JSAMPROW row = pixels_.data() + row_bytes * (info_.output_scanline - top);
      jpeg_read_scanlines(&info_, &row, 1);
    }
  }

  jpeg_decompress_struct info_ = {};
  JumpingErrors errors_ = {};
  std::vector<JSAMPLE> pixels_;
};

// The samples that decode, and the files they are in. Names of one file share its bytes.
class Samples {
 public:
  Samples(const std::string& list, Mode mode) {
    std::ifstream lines(list);
    if (!lines) throw std::runtime_error(list + ": cannot be read");
    std::string path;
    Sample sample;
    Decoder decoder;
    while (lines >> sample.box.top >> sample.box.left >> sample.box.height >> sample.box.width) {
      lines.get();  // the space
      std::getline(lines, path);
      sample.file = &Load(path);
      if (decoder.Decode(sample, mode)) samples_.push_back(sample);
    }
    if (!lines.eof()) throw std::runtime_error(list + ": a line is not TOP LEFT HEIGHT WIDTH PATH");
  }

  const std::vector<Sample>& all() const { return samples_; }

 private:
  const Bytes& Load(const std::string& path) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) throw std::runtime_error(path + ": cannot be read");
    const auto [place, fresh] = files_.try_emplace({status.st_dev, status.st_ino});
    if (fresh) {
      std::ifstream stream(path, std::ios::binary);
      place->second.assign(std::istreambuf_iterator<char>(stream), {});
    }
    return place->second;
  }

  std::map<std::pair<dev_t, ino_t>, Bytes> files_;
  std::vector<Sample> samples_;
};

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int Run(Mode mode, const std::string& list, unsigned threads, double seconds) {
  const Samples samples(list, mode);
  const std::vector<Sample>& all = samples.all();
  if (all.empty()) {
    std::fprintf(stderr, "limit: %s: no sample that decodes\n", list.c_str());
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
          if (decoder.Decode(all[taken++ % all.size()], mode)) ++decoded;
        }
      });
    }
  }
  const double elapsed = std::chrono::duration<double>(steady_clock::now() - begin).count();
  const double cpu = CpuSeconds() - cpu_before;
  const auto images = static_cast<double>(decoded.load());
  std::printf(
      "{\"samples\": %zu, \"threads\": %u, \"seconds\": %.3f, \"images\": %.0f, "
      "\"images_per_s\": %.2f, \"cpu_s_per_1000_images\": %.4f}\n",
      all.size(), threads, elapsed, images, images / elapsed, cpu * 1000 / images);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 5 ? argv[1] : "";
  const long threads = argc == 5 ? std::strtol(argv[3], nullptr, 10) : 0;
  const double seconds = argc == 5 ? std::strtod(argv[4], nullptr) : 0;
  if ((mode != "full" && mode != "crop") || threads < 1 || threads > 1024 ||
      !(seconds > 0 && seconds <= 3600)) {
    std::fprintf(stderr,
                 "usage: limit full|crop SAMPLES THREADS SECONDS   (1 to 1024 threads, up to 3600 "
                 "s)\n");
    return 2;
  }
  try {
    return Run(mode == "full" ? Mode::kFull : Mode::kCrop, argv[2], static_cast<unsigned>(threads),
               seconds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "limit: %s\n", error.what());
    return 1;
  }
}
