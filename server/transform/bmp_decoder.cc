// SPDX-License-Identifier: Apache-2.0
#include "server/transform/bmp_decoder.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/transform/canvas.h"

namespace loaderd::transform {
namespace {
enum Compression : uint32_t { kPlain = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };
constexpr size_t kFileHeaderBytes = 14;

// Little-endian numbers out of bytes that may end too early; past the end all is 0.
class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  uint32_t Get(size_t at, size_t count) const {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= uint32_t{At(at + i)} << (8 * i);
    return value;
  }
  uint8_t At(size_t at) const { return at < bytes_.size() ? bytes_[at] : 0; }
  size_t size() const { return bytes_.size(); }
  std::span<const uint8_t> From(size_t at) const {
    return bytes_.subspan(std::min(at, bytes_.size()));
  }

 private:
  std::span<const uint8_t> bytes_;
};

struct Header {
  size_t header_bytes = 0;
  uint64_t width = 0;
  uint64_t height = 0;
  uint32_t bits = 0;
  uint32_t compression = kPlain;
  uint64_t colors = 0;
  bool is_top_down = false;
  size_t color_bytes = 4;
  std::array<uint32_t, 4> masks = {};
  size_t end = 0;        // of the header, and of masks behind it
  size_t pixels_at = 0;  // from the file's begin
};

StatusOr<Header> ReadHeader(const Bytes& file) {
  Header out;
  out.header_bytes = file.Get(kFileHeaderBytes, 4);
  out.end = kFileHeaderBytes + out.header_bytes;
  out.pixels_at = file.Get(10, 4);
  if (file.size() < kFileHeaderBytes + 4 || out.end > file.size()) {
    return Truncated("BMP", file.size(), "in the header");
  }
  constexpr size_t kAt = kFileHeaderBytes;
  switch (out.header_bytes) {
    case 12:
      out.width = file.Get(kAt + 4, 2);
      out.height = file.Get(kAt + 6, 2);
      out.bits = file.Get(kAt + 10, 2);
      out.color_bytes = 3;
      break;
    case 40:
    case 52:
    case 56:
    case 64:
    case 108:
    case 124:
      out.is_top_down = file.At(kAt + 11) == 0xFF;
      out.width = file.Get(kAt + 4, 4);
      out.height = file.Get(kAt + 8, 4);
      if (out.is_top_down) out.height = (uint64_t{1} << 32) - out.height;
      out.bits = file.Get(kAt + 14, 2);
      out.compression = file.Get(kAt + 16, 4);
      out.colors = file.Get(kAt + 32, 4);
      break;
    default:
      return CannotDecode(
          "BMP", absl::StrCat("its header of ", out.header_bytes, " bytes is of no known kind"));
  }
  if (out.compression == kBitFields) {
    // With a header of 40 bytes they stand behind it, and there is no alpha.
    const size_t count = out.header_bytes >= 56 ? 4 : 3;
    for (size_t i = 0; i < count; ++i) out.masks[i] = file.Get(kAt + 40 + 4 * i, 4);
    if (out.header_bytes == 40) out.end += 12;
  }
  if (out.colors == 0 && out.bits <= 32) out.colors = uint64_t{1} << out.bits;
  if (out.pixels_at == kFileHeaderBytes + out.header_bytes && out.bits <= 8) {
    out.pixels_at += out.color_bytes * out.colors;
  }
  return out;
}

// Where the colours of a pixel of 16, 24 or 32 bits are.
struct Fields {
  uint32_t bits;
  std::array<uint32_t, 4> masks;
  std::array<uint8_t, 3> bytes;  // of red, green, blue; 24 and 32 bits
};
constexpr Fields kFields[] = {
    {32, {0xFF0000, 0xFF00, 0xFF, 0}, {2, 1, 0}},
    {32, {0xFF000000, 0xFF0000, 0xFF00, 0}, {3, 2, 1}},
    {32, {0xFF000000, 0xFF00, 0xFF, 0}, {3, 1, 0}},
    {32, {0xFF000000, 0xFF0000, 0xFF00, 0xFF}, {3, 2, 1}},
    {32, {0xFF, 0xFF00, 0xFF0000, 0xFF000000}, {0, 1, 2}},
    {32, {0xFF0000, 0xFF00, 0xFF, 0xFF000000}, {2, 1, 0}},
    {32, {0xFF000000, 0xFF00, 0xFF, 0xFF0000}, {3, 1, 0}},
    {32, {0, 0, 0, 0}, {2, 1, 0}},
    {24, {0xFF0000, 0xFF00, 0xFF, 0}, {2, 1, 0}},
    {16, {0xF800, 0x7E0, 0x1F, 0}, {}},
    {16, {0x7C00, 0x3E0, 0x1F, 0}, {}},
};

StatusOr<Fields> FieldsOf(const Header& header) {
  std::array<uint32_t, 4> masks = header.masks;
  if (header.compression != kBitFields) {
    masks = {0xFF0000, 0xFF00, 0xFF, 0};
    if (header.bits == 16) masks = {0x7C00, 0x3E0, 0x1F, 0};
  }
  if (header.bits != 32) masks[3] = 0;
  for (const Fields& fields : kFields) {
    if (fields.bits == header.bits && fields.masks == masks) return fields;
  }
  return CannotDecode("BMP", absl::StrCat("its bit fields (", absl::Hex(masks[0]), ", ",
                                          absl::Hex(masks[1]), ", ", absl::Hex(masks[2]), ", ",
                                          absl::Hex(masks[3]), ") are of no known kind"));
}

void PutFields(const Canvas& canvas, int y, const uint8_t* in, const Fields& fields, uint8_t* rgb) {
  const size_t step = fields.bits / 8;
  uint8_t* out = rgb;
  for (int x = 0; x < canvas.width(); ++x, in += step, out += 3) {
    if (fields.bits != 16) {
      for (size_t c = 0; c < 3; ++c) out[c] = in[fields.bytes[c]];
      continue;
    }
    const int pixel = in[0] | in[1] << 8;
    const int green_bits = fields.masks[1] == 0x7E0 ? 6 : 5;
    const int green_max = (1 << green_bits) - 1;
    out[0] = static_cast<uint8_t>((pixel >> (5 + green_bits) & 31) * 255 / 31);
    out[1] = static_cast<uint8_t>((pixel >> 5 & green_max) * 255 / green_max);
    out[2] = static_cast<uint8_t>((pixel & 31) * 255 / 31);
  }
  canvas.PutRgb(y, rgb);
}

struct Colors {
  Palette palette = {};
  uint32_t bits = 0;  // of a pixel, as Pillow then reads it
};

StatusOr<Colors> ColorsOf(const Bytes& file, const Header& header) {
  if (header.colors == 0 || header.colors > 65536) {
    return CannotDecode("BMP", absl::StrCat("its palette has ", header.colors, " colours"));
  }
  const std::span<const uint8_t> bytes = file.From(header.end);
  const size_t count = std::min<size_t>(header.colors, bytes.size() / header.color_bytes);
  Colors out{.bits = header.bits};
  bool is_ramp = count == header.colors;
  for (size_t i = 0; i < count; ++i) {
    const std::span<const uint8_t> color = bytes.subspan(i * header.color_bytes, 3);
    const auto grey = static_cast<uint8_t>(header.colors == 2 ? 255 * i : i);
    is_ramp = is_ramp && color[0] == grey && color[1] == grey && color[2] == grey;
    if (i < 256) out.palette[i] = {color[2], color[1], color[0]};
  }
  if (is_ramp) {
    // Pillow then forgets the palette, and with it how many bits a pixel has.
    out.bits = header.colors <= 2 ? 1 : 8;
    for (size_t i = 0; i < 256; ++i) out.palette[i].fill(static_cast<uint8_t>(i));
    if (header.colors <= 2) out.palette[1].fill(255);
  } else if (header.colors > 256) {
    return CannotDecode("BMP", absl::StrCat("its palette has ", header.colors, " colours"));
  }
  return out;
}

// Run lengths to one byte a pixel, rows in the file's order. What is left over at an early end is
// missing.
std::vector<uint8_t> Unroll(const Bytes& file, const Header& header) {
  const bool is_4 = header.compression == kRle4;
  const size_t width = header.width;
  const size_t total = width * header.height;
  std::vector<uint8_t> out;
  size_t at = header.pixels_at != 0 ? header.pixels_at : header.end;
  size_t x = 0;
  while (out.size() < total && at + 2 <= file.size()) {
    const uint8_t count = file.At(at);
    const uint8_t value = file.At(at + 1);
    at += 2;
    if (count != 0) {
      const size_t fits = std::min<size_t>(count, width - std::min(x, width));
      for (size_t i = 0; i < fits; ++i) {
        out.push_back(!is_4 ? value : i % 2 == 0 ? value >> 4 : value & 15);
      }
      x += fits;
    } else if (value == 0) {  // end of a row
      out.resize((out.size() + width - 1) / width * width);
      x = 0;
    } else if (value == 1) {  // end of the image
      break;
    } else if (value == 2) {  // a step to the right and up
      if (at + 2 > file.size()) break;
      const size_t step = file.At(at) + file.At(at + 1) * width;
      at += 2;
      out.resize(out.size() + std::min(total - out.size(), step));
      x = out.size() % width;
    } else {  // pixels as they are
      const size_t pixels = std::min<size_t>(total - out.size(), value);
      const size_t bytes = is_4 ? (pixels + 1) / 2 : pixels;
      const size_t there = std::min(bytes, file.From(at).size());
      for (size_t i = 0; i < there; ++i) {
        const uint8_t byte = file.At(at + i);
        out.push_back(is_4 ? byte >> 4 : byte);
        if (is_4 && 2 * i + 1 < pixels) out.push_back(byte & 15);
      }
      at += there;
      if (there < bytes || out.size() == total) break;
      x += value;
      at += at % 2;
    }
  }
  return out;
}
}  // namespace

StatusOr<Decoded> DecodeBmp(std::span<const uint8_t> encoded, const DecodeRules& rules,
                            ByteBuffer& pixels) {
  const Bytes file(encoded);
  ASSIGN_OR_RETURN(const Header header, ReadHeader(file));
  RETURN_IF_ERROR(CheckClaim("BMP", header.width, header.height, rules.max_pixels));
  const bool is_indexed = header.bits == 1 || header.bits == 4 || header.bits == 8;
  if (!is_indexed && header.bits != 16 && header.bits != 24 && header.bits != 32) {
    return CannotDecode("BMP", absl::StrCat("it has ", header.bits, " bits a pixel"));
  }
  if (header.compression > kBitFields) {
    return CannotDecode("BMP",
                        absl::StrCat("its compression ", header.compression, " is not supported"));
  }
  Colors colors;
  Fields fields = {};
  if (is_indexed) {
    if (header.compression == kBitFields) {
      return CannotDecode("BMP", "it has bit fields and a palette");
    }
    ASSIGN_OR_RETURN(colors, ColorsOf(file, header));
  } else {
    ASSIGN_OR_RETURN(fields, FieldsOf(header));
  }

  const Canvas canvas(pixels, rules, header.width, header.height, 3 * header.width);
  const auto place = [&](size_t row) {
    return static_cast<int>(header.is_top_down ? row : header.height - 1 - row);
  };
  if (header.compression == kRle8 || header.compression == kRle4) {
    if (!is_indexed || colors.bits == 1) {
      return CannotDecode("BMP", "its run lengths do not go with its colours");
    }
    const std::vector<uint8_t> unrolled = Unroll(file, header);
    if (unrolled.size() < header.width * header.height) {
      return Truncated("BMP", encoded.size(), "in the image data");
    }
    for (size_t row = 0; row < header.height; ++row) {
      canvas.PutIndexed(place(row), unrolled.data() + row * header.width, colors.palette);
    }
    return Decoded{canvas.image()};
  }

  const uint64_t stride = (header.width * header.bits + 31) / 32 * 4;
  const uint64_t needed = (header.width * (is_indexed ? colors.bits : header.bits) + 7) / 8;
  if (needed > stride) return CannotDecode("BMP", "its rows are too short for its pixels");
  std::span<const uint8_t> rest =
      file.From(header.pixels_at != 0 ? header.pixels_at
                : is_indexed          ? header.end + header.colors * header.color_bytes
                                      : header.end);
  for (size_t row = 0; row < header.height; ++row) {
    if (rest.size() < needed) return Truncated("BMP", encoded.size(), "in the image data");
    if (!is_indexed) {
      PutFields(canvas, place(row), rest.data(), fields, canvas.room());
    } else if (colors.bits == 8) {
      canvas.PutIndexed(place(row), rest.data(), colors.palette);
    } else {
      Unpack(rest.data(), static_cast<int>(colors.bits), {canvas.room(), header.width});
      canvas.PutIndexed(place(row), canvas.room(), colors.palette);
    }
    rest = rest.subspan(std::min<size_t>(rest.size(), stride));
  }
  return Decoded{canvas.image()};
}

}  // namespace loaderd::transform
