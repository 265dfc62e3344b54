// SPDX-License-Identifier: Apache-2.0
#include "server/transform/gif_decoder.h"

#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "server/transform/canvas.h"

namespace loaderd::transform {
namespace {
constexpr int kRowsBetweenLooks = 16;

struct Source {
  std::span<const uint8_t> left;
  bool has_ended = false;
};

int OnRead(GifFileType* gif, GifByteType* to, int count) {
  Source& source = *static_cast<Source*>(gif->UserData);
  const size_t bytes = std::min(static_cast<size_t>(std::max(count, 0)), source.left.size());
  std::memcpy(to, source.left.data(), bytes);
  source.left = source.left.subspan(bytes);
  if (static_cast<int>(bytes) == count) return count;
  source.has_ended = true;
  // A lone byte past the end is the empty block that closes an image: one whose pixels are all
  // there is whole without it, and one whose pixels are not misses them as well.
  if (count == 1) {
    *to = 0;
    return 1;
  }
  return static_cast<int>(bytes);
}

struct CloseGif {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, CloseGif>;

Status Failure(int error, const Source& source, size_t bytes, const char* where) {
  if (source.has_ended) return Truncated("GIF", bytes, where);
  const char* text = GifErrorString(error);
  return CannotDecode("GIF", text == nullptr ? "it is damaged" : text);
}

// What stands before the first image: the transparent colour, if there is one.
StatusOr<std::optional<uint8_t>> FindFirstImage(GifFileType* gif, const Source& source,
                                                size_t bytes) {
  std::optional<uint8_t> transparent;
  for (;;) {
    GifRecordType type;
    if (DGifGetRecordType(gif, &type) != GIF_OK) {
      return Failure(gif->Error, source, bytes, "before the first image");
    }
    if (type == IMAGE_DESC_RECORD_TYPE) break;
    if (type != EXTENSION_RECORD_TYPE) return CannotDecode("GIF", "it holds no image");
    int code = 0;
    GifByteType* block = nullptr;  // its length, then its bytes
    int result = DGifGetExtension(gif, &code, &block);
    const bool has_control = code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= 4;
    if (result == GIF_OK && has_control && (block[1] & 1) != 0) transparent = block[4];
    while (result == GIF_OK && block != nullptr) result = DGifGetExtensionNext(gif, &block);
    if (result != GIF_OK) return Failure(gif->Error, source, bytes, "in an extension");
  }
  if (DGifGetImageDesc(gif) != GIF_OK) {
    return Failure(gif->Error, source, bytes, "before the image data");
  }
  return transparent;
}

Palette ColorsOf(const ColorMapObject* map) {
  Palette palette = {};
  bool is_ramp = true;
  for (int i = 0; map != nullptr && i < std::min(map->ColorCount, 256); ++i) {
    const GifColorType& color = map->Colors[i];
    palette[i] = {color.Red, color.Green, color.Blue};
    is_ramp = is_ramp && color.Red == i && color.Green == i && color.Blue == i;
  }
  // Without colours, or where they are their own numbers, pixels are grey, all 256 of them.
  for (int i = 0; is_ramp && i < 256; ++i) palette[i].fill(static_cast<uint8_t>(i));
  return palette;
}

// Rows of an interlaced image come in four passes.
constexpr int kPassBegin[] = {0, 4, 2, 1};
constexpr int kPassStep[] = {8, 8, 4, 2};
}  // namespace

StatusOr<Decoded> DecodeGif(std::span<const uint8_t> encoded, const DecodeRules& rules,
                            ByteBuffer& pixels) {
  Source source{encoded};
  int error = 0;
  const Gif gif(DGifOpen(&source, OnRead, &error));
  if (gif == nullptr) return Failure(error, source, encoded.size(), "in the header");
  ASSIGN_OR_RETURN(const std::optional<uint8_t> transparent,
                   FindFirstImage(gif.get(), source, encoded.size()));
  const GifImageDesc& frame = gif->Image;
  if (frame.Left < 0 || frame.Top < 0 || frame.Width <= 0 || frame.Height <= 0) {
    return CannotDecode("GIF", "its first frame is empty");
  }
  const int width = std::max(gif->SWidth, frame.Left + frame.Width);
  const int height = std::max(gif->SHeight, frame.Top + frame.Height);
  RETURN_IF_ERROR(CheckClaim("GIF", static_cast<uint64_t>(width), static_cast<uint64_t>(height),
                             rules.max_pixels));
  const Palette palette = ColorsOf(frame.ColorMap != nullptr ? frame.ColorMap : gif->SColorMap);
  const Canvas canvas(pixels, rules, static_cast<uint64_t>(width), static_cast<uint64_t>(height),
                      static_cast<size_t>(width));
  uint8_t* const row = canvas.room();
  std::memset(row, transparent.value_or(0), static_cast<size_t>(width));
  int rows = 0;
  for (int pass = frame.Interlace ? 0 : 3; pass < 4; ++pass) {
    const int step = frame.Interlace ? kPassStep[pass] : 1;
    for (int y = frame.Interlace ? kPassBegin[pass] : 0; y < frame.Height; y += step) {
      if (rows++ % kRowsBetweenLooks == 0 && rules.deadline->passed()) {
        return TookTooLong("GIF", *rules.deadline);
      }
      if (DGifGetLine(gif.get(), row + frame.Left, frame.Width) != GIF_OK) {
        return Failure(gif->Error, source, encoded.size(), "in the image data");
      }
      canvas.PutIndexed(frame.Top + y, row, palette);
    }
  }
  // Around the frame, when it is there: a large screen may be all that a damaged file has.
  std::memset(row, transparent.value_or(0), static_cast<size_t>(width));
  for (int y = 0; y < height; ++y) {
    if (y < frame.Top || y >= frame.Top + frame.Height) canvas.PutIndexed(y, row, palette);
  }
  return Decoded{canvas.image()};
}

}  // namespace loaderd::transform
