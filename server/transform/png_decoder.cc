// SPDX-License-Identifier: Apache-2.0
#include "server/transform/png_decoder.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string_view>

#include "server/transform/canvas.h"
#include "server/transform/orientation.h"

namespace loaderd::transform {
namespace {
constexpr png_uint_32 kRowsBetweenLooks = 16;
// Of one compressed chunk; only colour, transparency and image data are read at all.
constexpr png_alloc_size_t kMaxChunkBytes = 8 << 20;
// No deflated byte holds more: 258 bytes in two bits (RFC 1951, 3.2.5).
constexpr uint64_t kMostInflated = 1032;

// All that libpng's callbacks and the guarded functions share. Trivial members only: a longjmp runs
// no destructor.
struct Decoder {
  png_structp png;
  png_infop info;
  std::jmp_buf jump;
  const uint8_t* next;
  size_t left;
  bool is_truncated;
  bool is_late;
  char message[160];
  const DecodeDeadline* deadline;
  const Canvas* canvas;
  const Palette* palette;
  size_t row_bytes;
  int passes;
  int channels;
  bool is_wide;
  bool is_indexed;
};

[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  Decoder& decoder = *static_cast<Decoder*>(png_get_error_ptr(png));
  std::strncpy(decoder.message, message, sizeof decoder.message - 1);
  std::longjmp(decoder.jump, 1);
}
void OnWarning(png_structp, png_const_charp) {}  // tolerated, as Pillow does

void OnRead(png_structp png, png_bytep to, size_t count) {
  Decoder& decoder = *static_cast<Decoder*>(png_get_io_ptr(png));
  if (count > decoder.left) {
    decoder.is_truncated = true;
    png_error(png, "it ends too early");
  }
  std::memcpy(to, decoder.next, count);
  decoder.next += count;
  decoder.left -= count;
}

// The one place a longjmp lands. `body` must hold nothing that has a destructor.
bool Guarded(Decoder& decoder, void (*body)(Decoder&)) {
  if (setjmp(decoder.jump) != 0) return false;
  body(decoder);
  return true;
}

void ReadInfo(Decoder& decoder) {
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, OnError, OnWarning);
  if (decoder.png == nullptr) std::longjmp(decoder.jump, 1);
  decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) std::longjmp(decoder.jump, 1);
  png_set_read_fn(decoder.png, &decoder, OnRead);
  // The pixels are counted by the caller, so that the message is one for all formats.
  png_set_user_limits(decoder.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_set_chunk_malloc_max(decoder.png, kMaxChunkBytes);
  // Profiles, texts and the like are skipped unread: they may be bombs.
  png_set_keep_unknown_chunks(decoder.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_crc_action(decoder.png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_read_info(decoder.png, decoder.info);
}

void SetUp(Decoder& decoder) {
  const int depth = png_get_bit_depth(decoder.png, decoder.info);
  const int color = png_get_color_type(decoder.png, decoder.info);
  decoder.is_indexed = color == PNG_COLOR_TYPE_PALETTE;
  decoder.is_wide = depth == 16 && color == PNG_COLOR_TYPE_GRAY;
  if (depth == 16 && !decoder.is_wide) png_set_strip_16(decoder.png);
  if (decoder.is_indexed) {
    png_set_packing(decoder.png);
  } else if (depth < 8) {
    png_set_expand_gray_1_2_4_to_8(decoder.png);
  }
  decoder.passes = png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
  decoder.row_bytes = png_get_rowbytes(decoder.png, decoder.info);
  decoder.channels = png_get_channels(decoder.png, decoder.info);
}

void PutRow(const Decoder& decoder, int y, const uint8_t* row) {
  const Canvas& canvas = *decoder.canvas;
  const auto step = static_cast<size_t>(decoder.channels);
  if (decoder.is_wide) {
    canvas.PutWide(y, row, true);
  } else if (decoder.is_indexed) {
    canvas.PutIndexed(y, row, *decoder.palette);
  } else if (decoder.channels <= 2) {
    canvas.PutGrey(y, row, step);
  } else {
    canvas.PutRgb(y, row, {step, 1});
  }
}

void ReadRows(Decoder& decoder) {
  const auto height = static_cast<png_uint_32>(decoder.canvas->height());
  for (int pass = 0; pass < decoder.passes; ++pass) {
    for (png_uint_32 y = 0; y < height; ++y) {
      if (y % kRowsBetweenLooks == 0 && decoder.deadline->passed()) {
        decoder.is_late = true;
        std::longjmp(decoder.jump, 1);
      }
      // An interlaced image comes in passes, each of which adds to all rows.
      uint8_t* const row =
          decoder.canvas->room() + (decoder.passes > 1 ? y * decoder.row_bytes : 0);
      png_read_row(decoder.png, row, nullptr);
      if (pass + 1 == decoder.passes) PutRow(decoder, static_cast<int>(y), row);
    }
  }
}

void ReadEnd(Decoder& decoder) { png_read_end(decoder.png, nullptr); }

class DestroyAtEnd {
 public:
  explicit DestroyAtEnd(Decoder& decoder) : decoder_(decoder) {}
  ~DestroyAtEnd() { png_destroy_read_struct(&decoder_.png, &decoder_.info, nullptr); }
  DestroyAtEnd(const DestroyAtEnd&) = delete;
  DestroyAtEnd& operator=(const DestroyAtEnd&) = delete;

 private:
  Decoder& decoder_;
};

Status Failure(const Decoder& decoder, size_t bytes, const char* where) {
  if (decoder.is_late) return TookTooLong("PNG", *decoder.deadline);
  if (decoder.is_truncated) return Truncated("PNG", bytes, where);
  return CannotDecode("PNG", decoder.message[0] == 0 ? "no memory for it" : decoder.message);
}

Palette ColorsOf(const Decoder& decoder) {
  Palette palette = {};
  png_colorp colors = nullptr;
  int count = 0;
  png_get_PLTE(decoder.png, decoder.info, &colors, &count);
  for (int i = 0; i < std::min(count, 256); ++i) {
    palette[i] = {colors[i].red, colors[i].green, colors[i].blue};
  }
  return palette;
}

// From the chunks eXIf and iTXt, wherever they stand.
int OrientationOf(std::span<const uint8_t> encoded) {
  static constexpr std::string_view kXmp("XML:com.adobe.xmp\0\0", 19);  // and: not compressed
  std::span<const uint8_t> exif, xmp;
  for (std::span<const uint8_t> rest = encoded.subspan(8); rest.size() >= 12;) {
    const size_t length = png_get_uint_32(rest.data());
    if (length > rest.size() - 12) break;
    const std::string_view type(reinterpret_cast<const char*>(rest.data()) + 4, 4);
    const std::span<const uint8_t> body = rest.subspan(8, length);
    if (type == "eXIf") exif = body;
    const std::string_view text(reinterpret_cast<const char*>(body.data()), body.size());
    if (type == "iTXt" && text.starts_with(kXmp)) xmp = body;
    rest = rest.subspan(12 + length);
  }
  return Orientation(exif, xmp);
}
}  // namespace

StatusOr<Decoded> DecodePng(std::span<const uint8_t> encoded, const DecodeRules& rules,
                            ByteBuffer& pixels) {
  Decoder decoder{};
  decoder.next = encoded.data();
  decoder.left = encoded.size();
  decoder.deadline = rules.deadline;
  const DestroyAtEnd destroy(decoder);
  if (!Guarded(decoder, ReadInfo)) {
    return Failure(decoder, encoded.size(), "before the image data");
  }
  const png_uint_32 width = png_get_image_width(decoder.png, decoder.info);
  const png_uint_32 height = png_get_image_height(decoder.png, decoder.info);
  RETURN_IF_ERROR(CheckClaim("PNG", width, height, rules.max_pixels));
  // libpng takes and clears memory for whole rows; so a false claim is found before.
  const uint64_t claimed = uint64_t{png_get_rowbytes(decoder.png, decoder.info)} * height;
  if (claimed / kMostInflated > encoded.size()) {
    return Truncated("PNG", encoded.size(), "before there can be all pixels");
  }
  if (!Guarded(decoder, SetUp)) return Failure(decoder, encoded.size(), "before the image data");

  const size_t rows = decoder.passes > 1 ? height : 1;
  const Canvas canvas(pixels, rules, width, height, decoder.row_bytes * rows);
  const Palette palette = ColorsOf(decoder);
  decoder.canvas = &canvas;
  decoder.palette = &palette;
  if (!Guarded(decoder, ReadRows)) return Failure(decoder, encoded.size(), "in the image data");
  // All rows are there. What follows matters only where it says that they are damaged.
  const bool is_damaged = !Guarded(decoder, ReadEnd) && !decoder.is_truncated &&
                          std::string_view(decoder.message).starts_with("IDAT");
  if (is_damaged) return Failure(decoder, encoded.size(), "in the image data");
  return Decoded{canvas.image(), rules.exif_transpose ? OrientationOf(encoded) : 1};
}

}  // namespace loaderd::transform
