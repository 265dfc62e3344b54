// SPDX-License-Identifier: Apache-2.0
#include "server/transform/image_decoder.h"

#include <algorithm>
#include <new>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/transform/bmp_decoder.h"
#include "server/transform/gif_decoder.h"
#include "server/transform/jpeg_decoder.h"
#include "server/transform/png_decoder.h"
#include "server/transform/pnm_decoder.h"
#include "server/transform/tiff_decoder.h"
#include "server/transform/webp_decoder.h"

namespace loaderd::transform {
namespace {
constexpr uint64_t kMaxEdge = uint64_t{1} << 24;
constexpr size_t kShownBytes = 8;
constexpr const char* kReads = "this version reads JPEG, PNG, WebP, GIF, BMP, TIFF and PBM/PGM/PPM";

bool IsRiff(std::string_view begin, std::string_view kind) {
  return begin.starts_with("RIFF") && begin.substr(std::min<size_t>(begin.size(), 8), 4) == kind;
}

struct Format {
  bool (*begins)(std::string_view);
  DecodeFunction decode;
};

constexpr Format kFormats[] = {
    {[](std::string_view b) { return b.starts_with("\xff\xd8\xff"); }, DecodeJpeg},
    {[](std::string_view b) { return b.starts_with("\x89PNG\r\n\x1a\n"); }, DecodePng},
    {[](std::string_view b) { return IsRiff(b, "WEBP"); }, DecodeWebp},
    {[](std::string_view b) { return b.starts_with("GIF87a") || b.starts_with("GIF89a"); },
     DecodeGif},
    {[](std::string_view b) { return b.starts_with("BM"); }, DecodeBmp},
    {[](std::string_view b) {
       return b.starts_with(std::string_view("II*\0", 4)) ||
              b.starts_with(std::string_view("MM\0*", 4)) ||
              b.starts_with(std::string_view("II+\0", 4)) ||
              b.starts_with(std::string_view("MM\0+", 4));
     },
     DecodeTiff},
    {[](std::string_view b) { return b.size() >= 2 && b[0] == 'P' && b[1] >= '1' && b[1] <= '6'; },
     DecodePnm},
};

// What a file that none of the codecs takes looks like; "" when nobody knows.
const char* NameOf(std::string_view begin) {
  struct Known {
    std::string_view at_start;
    std::string_view at_4;
    const char* name;
  };
  static constexpr Known kKnown[] = {
      {"\xff\xd8", "", "JPEG that ends or breaks after its first bytes"},
      {"\x89P", "", "PNG with a damaged beginning"},
      {"GIF8", "", "GIF of an unknown version"},
      {"", "ftypavif", "AVIF"},
      {"", "ftyphei", "HEIF"},
      {"", "ftypmif1", "HEIF"},
      {std::string_view("\0\0\0\x0cjP  ", 8), "", "JPEG 2000"},
      {"\xff\x4f\xff\x51", "", "JPEG 2000"},
      {"\xff\x0a", "", "JPEG XL"},
      {std::string_view("\0\0\0\x0cJXL ", 8), "", "JPEG XL"},
      {"8BPS", "", "Photoshop"},
      {std::string_view("\0\0\1\0", 4), "", "ICO"},
      {"<svg", "", "SVG"},
      {"<?xml", "", "XML"},
      {"<", "", "HTML or XML"},
      {"%PDF", "", "PDF"},
      {"PK\3\4", "", "ZIP"},
      {"\x1f\x8b", "", "gzip"},
      {"RIFF", "", "RIFF that is not WebP"},
      {"P0CMYK", "", "Pillow's CMYK PNM"},
      {"Pf", "", "PFM, of floats"},
      {"PF", "", "PFM, of floats"},
      {"P7", "", "PAM"},
  };
  for (const Known& known : kKnown) {
    const std::string_view rest = begin.substr(std::min<size_t>(begin.size(), 4));
    if (begin.starts_with(known.at_start) && rest.starts_with(known.at_4)) return known.name;
  }
  return "";
}
}  // namespace

StatusOr<Decoded> DecodeImage(std::span<const uint8_t> encoded, const DecodeRules& rules,
                              ByteBuffer& pixels) {
  if (encoded.empty()) return absl::DataLossError("empty file: it has no bytes");
  const std::string_view begin(reinterpret_cast<const char*>(encoded.data()),
                               std::min<size_t>(encoded.size(), 16));
  for (const Format& format : kFormats) {
    if (!format.begins(begin)) continue;
    try {
      return format.decode(encoded, rules, pixels);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(
          "no memory to decode an image of its size; lower limits.max_pixels");
    }
  }
  const std::string shown =
      absl::CHexEscape(std::string(begin.substr(0, std::min(begin.size(), kShownBytes))));
  const std::string name = NameOf(begin);
  return absl::DataLossError(absl::StrCat("no image that can be read: found ",
                                          name.empty() ? "an unknown format" : name,
                                          ", begins with \"", shown, "\"; ", kReads));
}

Status CheckClaim(const char* format, uint64_t width, uint64_t height, uint64_t max_pixels) {
  if (width == 0 || height == 0) {
    return absl::DataLossError(
        absl::StrCat(format, " claims ", width, " x ", height, " pixels: it is empty"));
  }
  if (width > kMaxEdge || height > kMaxEdge || width * height > max_pixels) {
    return absl::DataLossError(absl::StrCat(format, " claims ", width, " x ", height,
                                            " pixels; the limit is ", max_pixels,
                                            " pixels, limits.max_pixels"));
  }
  return absl::OkStatus();
}

Status CannotDecode(const char* format, const std::string& why) {
  return absl::DataLossError(absl::StrCat(format, " cannot be decoded: ", why));
}

Status Truncated(const char* format, size_t bytes, const std::string& where) {
  return absl::DataLossError(
      absl::StrCat(format, " is truncated: its ", bytes, " bytes end ", where));
}

Status TookTooLong(const char* format, const DecodeDeadline& deadline) {
  return absl::DataLossError(absl::StrCat(format, " is not decoded after ", deadline.max_ms(),
                                          " ms, the limit of limits.max_decode_ms; raise it, "
                                          "or write the image again in a plainer coding"));
}

}  // namespace loaderd::transform
