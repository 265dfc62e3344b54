// SPDX-License-Identifier: Apache-2.0
#include "server/transform/jpeg_decoder.h"

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE and size_t before it
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace loaderd::transform {
namespace {
// Encoders write ten or so; each scan costs a pass over all coefficients, so a small file could
// keep a core busy for hours.
constexpr int kMaxScans = 500;
constexpr int kRowsAtOnce = 4;  // as many as libjpeg gives in one call with the samplings in use

// All that libjpeg's callbacks and the guarded functions share. Trivial members only: a longjmp
// runs no destructor.
struct Decoder {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  int header = JPEG_SUSPENDED;
  bool done = false;
  bool too_many_scans = false;
  bool to_grey = false;
  uint8_t* pixels = nullptr;
  size_t row_bytes = 0;
  uint8_t* rgb_row = nullptr;
};

Decoder& Of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

[[noreturn]] void OnError(j_common_ptr info) { std::longjmp(Of(info).jump, 1); }
void OnMessage(j_common_ptr) {}  // warnings are counted by libjpeg and tolerated, as Pillow does

void OnProgress(j_common_ptr info) {
  if (Of(info).info.input_scan_number <= kMaxScans) return;
  Of(info).too_many_scans = true;
  std::longjmp(Of(info).jump, 1);
}

// The source is the whole file; at its end libjpeg suspends, which tells truncation from damage.
// (An invented end marker, as libjpeg's own memory source makes, would hide it.)
boolean OnNoMoreInput(j_decompress_ptr) { return FALSE; }
void OnSourceEdge(j_decompress_ptr) {}
void OnSkip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  const size_t bytes = std::min(static_cast<size_t>(count), info->src->bytes_in_buffer);
  info->src->next_input_byte += bytes;
  info->src->bytes_in_buffer -= bytes;
}

// The one place a longjmp lands. `body` must hold nothing that has a destructor.
bool Guarded(Decoder& decoder, void (*body)(Decoder&)) {
  if (setjmp(decoder.jump) != 0) return false;
  body(decoder);
  return true;
}

void ReadHeader(Decoder& decoder) {
  jpeg_create_decompress(&decoder.info);
  decoder.info.client_data = &decoder;
  decoder.info.src = &decoder.source;
  decoder.info.progress = &decoder.progress;
  do {
    decoder.header = jpeg_read_header(&decoder.info, FALSE);
  } while (decoder.header == JPEG_HEADER_TABLES_ONLY);
}

void Start(Decoder& decoder) {
  decoder.info.dct_method = JDCT_ISLOW;
  decoder.info.do_fancy_upsampling = TRUE;
  decoder.done = jpeg_start_decompress(&decoder.info);
}

void ReadRows(Decoder& decoder) {
  decoder.done = false;
  while (decoder.info.output_scanline < decoder.info.output_height) {
    uint8_t* const row = decoder.pixels + decoder.info.output_scanline * decoder.row_bytes;
    if (decoder.to_grey) {
      if (jpeg_read_scanlines(&decoder.info, &decoder.rgb_row, 1) == 0) return;
      for (JDIMENSION x = 0; x < decoder.info.output_width; ++x) {
        row[x] = Luma(decoder.rgb_row + size_t{3} * x);
      }
      continue;
    }
    const JDIMENSION left = decoder.info.output_height - decoder.info.output_scanline;
    const JDIMENSION count = std::min<JDIMENSION>(kRowsAtOnce, left);
    JSAMPROW rows[kRowsAtOnce];
    for (JDIMENSION i = 0; i < count; ++i) rows[i] = row + i * decoder.row_bytes;
    if (jpeg_read_scanlines(&decoder.info, rows, count) == 0) return;
  }
  decoder.done = true;
}

// All rows are there: whether an end marker follows is no matter, but what libjpeg calls an error
// on the way to it is one.
void Finish(Decoder& decoder) { jpeg_finish_decompress(&decoder.info); }

class DestroyAtEnd {
 public:
  explicit DestroyAtEnd(Decoder& decoder) : decoder_(decoder) {}
  ~DestroyAtEnd() { jpeg_destroy_decompress(&decoder_.info); }
  DestroyAtEnd(const DestroyAtEnd&) = delete;
  DestroyAtEnd& operator=(const DestroyAtEnd&) = delete;

 private:
  Decoder& decoder_;
};

Status Failure(Decoder& decoder) {
  if (decoder.too_many_scans) {
    return absl::DataLossError(
        absl::StrCat("JPEG with more than ", kMaxScans, " scans; write it again with fewer"));
  }
  char message[JMSG_LENGTH_MAX];
  decoder.errors.format_message(reinterpret_cast<j_common_ptr>(&decoder.info), message);
  if (decoder.errors.msg_code == JERR_OUT_OF_MEMORY) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory to decode a JPEG: ", message));
  }
  return absl::DataLossError(absl::StrCat("JPEG cannot be decoded: ", message));
}

Status Truncated(size_t bytes, const std::string& where) {
  return absl::DataLossError(absl::StrCat("JPEG is truncated: its ", bytes, " bytes end ", where));
}

Status NotJpeg(std::span<const uint8_t> encoded) {
  struct Known {
    std::string_view begin;
    const char* name;
  };
  static constexpr Known kKnown[] = {
      {"\x89PNG", "PNG"},
      {"GIF8", "GIF"},
      {"RIFF", "RIFF, as WebP is"},
      {"BM", "BMP"},
      {std::string_view("II*\0", 4), "TIFF"},
      {std::string_view("MM\0*", 4), "TIFF"},
      {"\xff\xd8", "JPEG that ends or breaks after its first bytes"}};
  const std::string text(reinterpret_cast<const char*>(encoded.data()),
                         std::min<size_t>(encoded.size(), 8));
  std::string looks;
  for (const Known& known : kKnown) {
    if (text.starts_with(known.begin)) looks = absl::StrCat(" (", known.name, ")");
  }
  return absl::DataLossError(absl::StrCat("not a JPEG: begins with \"", absl::CHexEscape(text),
                                          "\"", looks, "; only JPEG is decoded"));
}

Status CheckHeader(const Decoder& decoder, uint64_t max_pixels) {
  const jpeg_decompress_struct& info = decoder.info;
  const uint64_t pixels = uint64_t{info.image_width} * info.image_height;
  if (pixels > max_pixels) {
    return absl::DataLossError(absl::StrCat("JPEG claims ", info.image_width, " x ",
                                            info.image_height, " pixels; the limit is ", max_pixels,
                                            " pixels"));
  }
  if (info.num_components != 1 && info.num_components != 3) {
    return absl::DataLossError(absl::StrCat("JPEG has ", info.num_components, " components",
                                            info.num_components == 4 ? " (CMYK or YCCK)" : "",
                                            "; only grey and three-component JPEGs are decoded"));
  }
  return absl::OkStatus();
}
}  // namespace

StatusOr<Image> DecodeJpeg(std::span<const uint8_t> encoded, ImageMode mode, uint64_t max_pixels,
                           ByteBuffer& pixels) {
  if (encoded.empty()) return absl::DataLossError("not a JPEG: the file is empty");
  if (encoded.size() < 3 || encoded[0] != 0xFF || encoded[1] != 0xD8 || encoded[2] != 0xFF) {
    return NotJpeg(encoded);
  }
  Decoder decoder{};
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.info.client_data = &decoder;  // for an error while it is created
  decoder.errors.error_exit = OnError;
  decoder.errors.output_message = OnMessage;
  decoder.progress.progress_monitor = OnProgress;
  decoder.source = {.next_input_byte = encoded.data(),
                    .bytes_in_buffer = encoded.size(),
                    .init_source = OnSourceEdge,
                    .fill_input_buffer = OnNoMoreInput,
                    .skip_input_data = OnSkip,
                    .resync_to_restart = jpeg_resync_to_restart,
                    .term_source = OnSourceEdge};
  const DestroyAtEnd destroy(decoder);
  if (!Guarded(decoder, ReadHeader)) return Failure(decoder);
  if (decoder.header == JPEG_SUSPENDED) return Truncated(encoded.size(), "before the image data");
  RETURN_IF_ERROR(CheckHeader(decoder, max_pixels));

  jpeg_decompress_struct& info = decoder.info;
  const bool is_grey = info.num_components == 1;
  const int channels = mode == ImageMode::kL ? 1 : 3;
  decoder.to_grey = !is_grey && channels == 1;
  info.out_color_space = is_grey && channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  if (!Guarded(decoder, Start)) return Failure(decoder);
  if (!decoder.done) return Truncated(encoded.size(), "before the last scan");

  decoder.row_bytes = size_t{info.output_width} * static_cast<size_t>(channels);
  const size_t image_bytes = decoder.row_bytes * info.output_height;
  const size_t rgb_row_bytes = decoder.to_grey ? size_t{3} * info.output_width : 0;
  decoder.pixels = pixels.Resize(image_bytes + rgb_row_bytes).data();
  decoder.rgb_row = decoder.pixels + image_bytes;
  if (!Guarded(decoder, ReadRows)) return Failure(decoder);
  if (!decoder.done) {
    return Truncated(encoded.size(),
                     absl::StrCat("in row ", info.output_scanline, " of ", info.output_height));
  }
  const Image image = Contiguous(decoder.pixels, static_cast<int>(info.output_height),
                                 static_cast<int>(info.output_width), channels);
  if (!Guarded(decoder, Finish)) return Failure(decoder);
  return image;
}

}  // namespace loaderd::transform
