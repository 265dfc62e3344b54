// SPDX-License-Identifier: Apache-2.0
#include "server/transform/jpeg_decoder.h"

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE and size_t before it
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/transform/canvas.h"
#include "server/transform/orientation.h"

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
  bool is_late = false;
  bool is_direct = false;  // libjpeg gives what the canvas takes
  const Canvas* canvas = nullptr;
  const DecodeDeadline* deadline = nullptr;
};

Decoder& Of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

[[noreturn]] void OnError(j_common_ptr info) { std::longjmp(Of(info).jump, 1); }
void OnMessage(j_common_ptr) {}  // warnings are counted by libjpeg and tolerated, as Pillow does

// Called for each row of blocks in each scan.
void OnProgress(j_common_ptr info) {
  Decoder& decoder = Of(info);
  decoder.too_many_scans = decoder.info.input_scan_number > kMaxScans;
  decoder.is_late = decoder.deadline->passed();
  if (decoder.too_many_scans || decoder.is_late) std::longjmp(decoder.jump, 1);
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
  const Canvas& canvas = *decoder.canvas;
  while (decoder.info.output_scanline < decoder.info.output_height) {
    const auto y = static_cast<int>(decoder.info.output_scanline);
    if (decoder.is_direct) {
      const JDIMENSION left = decoder.info.output_height - decoder.info.output_scanline;
      const JDIMENSION count = std::min<JDIMENSION>(kRowsAtOnce, left);
      JSAMPROW rows[kRowsAtOnce];
      for (JDIMENSION i = 0; i < count; ++i) rows[i] = canvas.Row(y + static_cast<int>(i));
      if (jpeg_read_scanlines(&decoder.info, rows, count) == 0) return;
      continue;
    }
    JSAMPROW row = canvas.room();
    if (jpeg_read_scanlines(&decoder.info, &row, 1) == 0) return;
    if (decoder.info.out_color_space == JCS_CMYK) {
      canvas.PutCmyk(y, row, {4, 1}, true);
    } else {
      canvas.PutRgb(y, row);
    }
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
  if (decoder.is_late) return TookTooLong("JPEG", *decoder.deadline);
  if (decoder.too_many_scans) {
    return absl::DataLossError(
        absl::StrCat("JPEG with more than ", kMaxScans, " scans; write it again with fewer"));
  }
  char message[JMSG_LENGTH_MAX];
  decoder.errors.format_message(reinterpret_cast<j_common_ptr>(&decoder.info), message);
  if (decoder.errors.msg_code == JERR_OUT_OF_MEMORY) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory to decode a JPEG: ", message));
  }
  return CannotDecode("JPEG", message);
}

Status CheckHeader(const Decoder& decoder, uint64_t max_pixels) {
  const jpeg_decompress_struct& info = decoder.info;
  RETURN_IF_ERROR(CheckClaim("JPEG", info.image_width, info.image_height, max_pixels));
  if (info.num_components != 1 && info.num_components != 3 && info.num_components != 4) {
    return CannotDecode("JPEG", absl::StrCat("it has ", info.num_components, " components"));
  }
  return absl::OkStatus();
}

// From the segments before the first scan, as Pillow finds it.
int OrientationOf(std::span<const uint8_t> encoded) {
  static constexpr std::string_view kExif("Exif\0\0", 6);
  static constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  std::vector<uint8_t> exif;  // Pillow puts several together
  std::span<const uint8_t> xmp;
  for (std::span<const uint8_t> rest = encoded.subspan(2); rest.size() >= 4;) {
    const uint8_t marker = rest[1];
    if (rest[0] != 0xFF || marker == 0xFF) {  // padding, or what libjpeg skips too
      rest = rest.subspan(1);
      continue;
    }
    if (marker == 0xDA || marker == 0xD9) break;
    if (marker == 0 || marker == 1 || (marker >= 0xD0 && marker <= 0xD8)) {  // without a body
      rest = rest.subspan(2);
      continue;
    }
    const size_t length = size_t{rest[2]} << 8 | rest[3];
    if (length < 2 || length + 2 > rest.size()) break;
    const std::span<const uint8_t> body = rest.subspan(4, length - 2);
    const std::string_view text(reinterpret_cast<const char*>(body.data()), body.size());
    if (marker == 0xE1 && text.starts_with(kExif)) {
      exif.insert(exif.end(), body.begin() + (exif.empty() ? 0 : 6), body.end());
    } else if (marker == 0xE1 && text.starts_with(kXmp)) {
      xmp = body.subspan(kXmp.size());
    }
    rest = rest.subspan(length + 2);
  }
  return Orientation(exif, xmp);
}
}  // namespace

StatusOr<Decoded> DecodeJpeg(std::span<const uint8_t> encoded, const DecodeRules& rules,
                             ByteBuffer& pixels) {
  Decoder decoder{};
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.info.client_data = &decoder;  // for an error while it is created
  decoder.deadline = rules.deadline;
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
  if (decoder.header == JPEG_SUSPENDED) {
    return Truncated("JPEG", encoded.size(), "before the image data");
  }
  RETURN_IF_ERROR(CheckHeader(decoder, rules.max_pixels));

  jpeg_decompress_struct& info = decoder.info;
  const bool is_grey = info.num_components == 1 && rules.mode == ImageMode::kL;
  info.out_color_space = is_grey ? JCS_GRAYSCALE : info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  if (!Guarded(decoder, Start)) return Failure(decoder);
  if (!decoder.done) return Truncated("JPEG", encoded.size(), "before the last scan");

  decoder.is_direct = is_grey || (rules.mode == ImageMode::kRgb && info.num_components != 4);
  const size_t room = decoder.is_direct ? 0 : size_t{4} * info.output_width;
  const Canvas canvas(pixels, rules, info.output_width, info.output_height, room);
  decoder.canvas = &canvas;
  if (!Guarded(decoder, ReadRows)) return Failure(decoder);
  if (!decoder.done) {
    return Truncated("JPEG", encoded.size(),
                     absl::StrCat("in row ", info.output_scanline, " of ", info.output_height));
  }
  if (!Guarded(decoder, Finish)) return Failure(decoder);
  return Decoded{canvas.image(), rules.exif_transpose ? OrientationOf(encoded) : 1};
}

}  // namespace loaderd::transform
