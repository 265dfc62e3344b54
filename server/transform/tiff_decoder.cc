// SPDX-License-Identifier: Apache-2.0
#include "server/transform/tiff_decoder.h"

#include <tiffio.h>

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "server/transform/canvas.h"
#include "server/transform/orientation.h"

namespace loaderd::transform {
namespace {
constexpr bool kIsBigEndian = std::endian::native == std::endian::big;
constexpr tmsize_t kMaxAlloc = tmsize_t{1} << 31;  // of libtiff's own; pixels are counted apart
constexpr int kMaxSamples = 6;                     // of a pixel, as in Pillow

// The file in memory, and what libtiff says of it.
struct Source {
  std::span<const uint8_t> bytes;
  uint64_t at = 0;
  char message[200] = {};
};

Source& Of(thandle_t handle) { return *static_cast<Source*>(handle); }

tmsize_t OnRead(thandle_t handle, void* to, tmsize_t count) {
  Source& source = Of(handle);
  const uint64_t size = source.bytes.size();
  if (count <= 0 || source.at >= size) return 0;
  const uint64_t bytes = std::min<uint64_t>(static_cast<uint64_t>(count), size - source.at);
  std::memcpy(to, source.bytes.data() + source.at, bytes);
  source.at += bytes;
  return static_cast<tmsize_t>(bytes);
}
tmsize_t OnWrite(thandle_t, void*, tmsize_t) { return 0; }
toff_t OnSeek(thandle_t handle, toff_t offset, int whence) {
  Source& source = Of(handle);
  if (whence == SEEK_CUR) offset += source.at;
  if (whence == SEEK_END) offset += source.bytes.size();
  return source.at = offset;
}
int OnClose(thandle_t) { return 0; }
toff_t OnSize(thandle_t handle) { return Of(handle).bytes.size(); }
int OnMap(thandle_t, void**, toff_t*) { return 0; }
void OnUnmap(thandle_t, void*, toff_t) {}

int OnError(TIFF*, void* user, const char*, const char* format, va_list values) {
  Source& source = *static_cast<Source*>(user);
  if (source.message[0] == 0) {
    std::vsnprintf(source.message, sizeof source.message, format, values);
  }
  return 1;
}
int OnWarning(TIFF*, void*, const char*, const char*, va_list) { return 1; }

struct CloseTiff {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};
using Tiff = std::unique_ptr<TIFF, CloseTiff>;

Tiff Open(Source& source) {
  const std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions*)> options(TIFFOpenOptionsAlloc(),
                                                                             TIFFOpenOptionsFree);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), OnError, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), OnWarning, &source);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMaxAlloc);
  return Tiff(TIFFClientOpenExt("image", "rm", &source, OnRead, OnWrite, OnSeek, OnClose, OnSize,
                                OnMap, OnUnmap, options.get()));
}

Status Failure(const Source& source) {
  return CannotDecode("TIFF", source.message[0] == 0 ? "it is damaged" : source.message);
}

struct Header {
  uint32_t width = 0;
  uint32_t height = 0;
  uint16_t photometric = 0;
  uint16_t compression = 1;
  uint16_t bits = 1;
  uint16_t samples = 1;
  uint16_t planar = PLANARCONFIG_CONTIG;
  uint16_t extra = 0xFFFF;  // what the first extra sample is; 0xFFFF: there is none
};

Header ReadHeader(TIFF* tiff) {
  Header out;
  TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &out.width);
  TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &out.height);
  TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &out.photometric);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &out.compression);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &out.bits);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &out.samples);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &out.planar);
  uint16_t count = 0;
  uint16_t* kinds = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) != 0 && count > 0) {
    out.extra = kinds[0];
  }
  return out;
}

// How many samples of a pixel have the picture in them; 0 for what is not decoded.
int PictureSamples(const Header& header) {
  const bool is_8_or_16 = header.bits == 8 || header.bits == 16;
  const bool is_packed = header.bits == 1 || header.bits == 2 || header.bits == 4;
  switch (header.photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
      if (header.samples == 1) return is_packed || is_8_or_16 ? 1 : 0;
      return header.samples == 2 && header.bits == 8 && header.extra != EXTRASAMPLE_ASSOCALPHA &&
                     header.photometric == PHOTOMETRIC_MINISBLACK
                 ? 1
                 : 0;
    case PHOTOMETRIC_PALETTE:
      if (header.samples == 1) return is_packed || header.bits == 8 ? 1 : 0;
      return header.samples == 2 && header.bits == 8 ? 1 : 0;
    case PHOTOMETRIC_RGB:
      if (!is_8_or_16 || header.samples < 3) return 0;
      return header.samples > 3 && header.extra == EXTRASAMPLE_ASSOCALPHA ? 4 : 3;
    case PHOTOMETRIC_SEPARATED: return is_8_or_16 && header.samples >= 4 ? 4 : 0;
    case PHOTOMETRIC_YCBCR:
      return header.bits == 8 && header.samples == 3 && header.compression != COMPRESSION_NONE ? 3
                                                                                               : 0;
    default: return 0;
  }
}

Status CheckCoding(TIFF* tiff, const Header& header) {
  uint16_t format = SAMPLEFORMAT_UINT;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &format);
  const bool is_unsigned = format == SAMPLEFORMAT_UINT || format == SAMPLEFORMAT_VOID ||
                           (format == SAMPLEFORMAT_INT && header.bits == 8);
  if (!is_unsigned || header.samples > kMaxSamples || PictureSamples(header) == 0) {
    return CannotDecode("TIFF", absl::StrCat("photometric ", header.photometric, " with ",
                                             header.samples, " samples of ", header.bits,
                                             " bits and format ", format, " is not supported"));
  }
  if (TIFFIsCODECConfigured(header.compression) == 0) {
    return CannotDecode("TIFF",
                        absl::StrCat("compression ", header.compression, " is not supported"));
  }
  return absl::OkStatus();
}

// Strips or tiles: how large they are, and what libtiff needs for one.
struct Blocks {
  bool are_tiles = false;
  uint32_t width = 0;
  uint32_t height = 0;
  tmsize_t bytes = 0;
  tmsize_t line_bytes = 0;
};

StatusOr<Blocks> BlocksOf(TIFF* tiff, const Header& header, const DecodeRules& rules) {
  Blocks out{.are_tiles = TIFFIsTiled(tiff) != 0};
  if (out.are_tiles) {
    TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &out.width);
    TIFFGetField(tiff, TIFFTAG_TILELENGTH, &out.height);
  } else {
    out.width = header.width;
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &out.height);
    out.height = std::min(out.height, header.height);
  }
  RETURN_IF_ERROR(CheckClaim("A block of the TIFF", out.width, out.height, rules.max_pixels));
  out.bytes = out.are_tiles ? TIFFTileSize(tiff) : TIFFStripSize(tiff);
  out.line_bytes = out.are_tiles ? TIFFTileRowSize(tiff) : TIFFScanlineSize(tiff);
  return out;
}

// Reads strips or tiles into rows of `row_bytes`. Of planes, sample after sample of each pixel is
// put together.
class Reader {
 public:
  Reader(TIFF* tiff, const Header& header, const Source& source, const DecodeRules& rules)
      : tiff_(tiff), header_(header), source_(source), rules_(rules) {
    is_planar_ = header.planar == PLANARCONFIG_SEPARATE && header.samples > 1;
    samples_ = is_planar_ ? static_cast<size_t>(PictureSamples(header)) : header.samples;
    const size_t bits = samples_ * header.bits;
    row_bytes_ = (header.width * bits + 7) / 8;
  }

  size_t row_bytes() const { return row_bytes_; }
  size_t samples() const { return samples_; }

  Status Read(uint8_t* rows) {
    ASSIGN_OR_RETURN(const Blocks blocks, BlocksOf(tiff_, header_, rules_));
    const auto [is_tiled, block_width, block_height, size, line] = blocks;
    const size_t plane_bits = size_t{header_.bits} * (is_planar_ ? 1 : header_.samples);
    const auto needed = static_cast<tmsize_t>((block_width * plane_bits + 7) / 8);
    if (size <= 0 || line < needed || size < line * static_cast<tmsize_t>(block_height)) {
      return Failure(source_);
    }
    // Not touched before there are pixels to put in: the claim may be false.
    uint8_t* const block = block_.Resize(static_cast<size_t>(size)).data();
    for (size_t plane = 0; plane < (is_planar_ ? samples_ : 1); ++plane) {
      for (uint32_t top = 0; top < header_.height; top += block_height) {
        for (uint32_t left = 0; left < header_.width; left += block_width) {
          if (rules_.deadline->passed()) return TookTooLong("TIFF", *rules_.deadline);
          const uint32_t height = std::min(block_height, header_.height - top);
          const uint32_t width = std::min(block_width, header_.width - left);
          const tmsize_t want = is_tiled ? size : line * static_cast<tmsize_t>(height);
          const auto sample = static_cast<uint16_t>(plane);
          const tmsize_t got =
              is_tiled
                  ? TIFFReadEncodedTile(tiff_, TIFFComputeTile(tiff_, left, top, 0, sample), block,
                                        want)
                  : TIFFReadEncodedStrip(tiff_, TIFFComputeStrip(tiff_, top, sample), block, want);
          if (got != want) return Failure(source_);
          for (uint32_t y = 0; y < height; ++y) {
            Put(rows + row_bytes_ * (top + y), block + static_cast<size_t>(line) * y, left, width,
                plane);
          }
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  // Tiles are 16 pixels wide or a multiple of it, so that each begins with a whole byte.
  void Put(uint8_t* row, const uint8_t* in, uint32_t left, uint32_t width, size_t plane) const {
    const size_t sample_bytes = header_.bits / 8;
    if (is_planar_) {
      const size_t pixel = samples_ * sample_bytes;
      uint8_t* out = row + left * pixel + plane * sample_bytes;
      for (uint32_t x = 0; x < width; ++x, out += pixel, in += sample_bytes) {
        std::memcpy(out, in, sample_bytes);
      }
      return;
    }
    const size_t bits = samples_ * header_.bits;
    std::memcpy(row + left * bits / 8, in, (width * bits + 7) / 8);
  }

  TIFF* const tiff_;
  const Header& header_;
  const Source& source_;
  const DecodeRules& rules_;
  bool is_planar_;
  size_t samples_;
  size_t row_bytes_;
  ByteBuffer block_;
};

StatusOr<Palette> ColorsOf(TIFF* tiff, const Header& header) {
  Palette palette = {};
  uint16_t *red = nullptr, *green = nullptr, *blue = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_COLORMAP, &red, &green, &blue) == 0) {
    return CannotDecode("TIFF", "it has no palette");
  }
  for (size_t i = 0; i < size_t{1} << header.bits; ++i) {
    palette[i] = {static_cast<uint8_t>(red[i] >> 8), static_cast<uint8_t>(green[i] >> 8),
                  static_cast<uint8_t>(blue[i] >> 8)};
  }
  return palette;
}

// A palette that makes grey of the samples of 1 to 8 bits.
Palette GreyOf(const Header& header) {
  Palette palette = {};
  const int most = (1 << header.bits) - 1;
  for (int i = 0; i <= most; ++i) {
    const int grey = i * 255 / most;
    palette[static_cast<size_t>(i)].fill(
        static_cast<uint8_t>(header.photometric == PHOTOMETRIC_MINISWHITE ? 255 - grey : grey));
  }
  return palette;
}

void PutRow(const Canvas& canvas, int y, const uint8_t* in, const Header& header, size_t samples,
            const Palette& palette, std::span<uint8_t> unpacked) {
  const size_t sample_bytes = std::max<size_t>(header.bits / 8, 1);
  const SampleLayout layout = {samples * sample_bytes, sample_bytes};
  // Of 16 bits the high byte.
  const uint8_t* const high = in + (header.bits == 16 && !kIsBigEndian ? 1 : 0);
  switch (header.photometric) {
    case PHOTOMETRIC_RGB:
      if (samples > 3 && header.extra == EXTRASAMPLE_ASSOCALPHA) {
        canvas.PutPremultiplied(y, high, layout);
      } else {
        canvas.PutRgb(y, high, layout);
      }
      return;
    case PHOTOMETRIC_SEPARATED: canvas.PutCmyk(y, high, layout, false); return;
    case PHOTOMETRIC_YCBCR: canvas.PutRgb(y, in); return;
    default: break;
  }
  if (header.bits == 16) {
    canvas.PutWide(y, in, kIsBigEndian);
  } else if (header.bits == 8) {
    canvas.PutIndexed(y, in, palette, samples);
  } else {
    Unpack(in, header.bits, unpacked);
    canvas.PutIndexed(y, unpacked.data(), palette);
  }
}

// Subsampled colours, put together by libtiff as RGB and alpha.
Status ReadMixed(TIFF* tiff, const Header& header, const Source& source, const DecodeRules& rules,
                 const Canvas& canvas) {
  // libtiff clears memory for a whole block before it looks into it; so the first is tried before.
  ASSIGN_OR_RETURN(const Blocks blocks, BlocksOf(tiff, header, rules));
  if (blocks.bytes <= 0) return Failure(source);
  ByteBuffer first;
  uint8_t* const block = first.Resize(static_cast<size_t>(blocks.bytes)).data();
  const tmsize_t got = blocks.are_tiles ? TIFFReadEncodedTile(tiff, 0, block, blocks.bytes)
                                        : TIFFReadEncodedStrip(tiff, 0, block, blocks.bytes);
  if (got <= 0) return Failure(source);
  first.Free();
  // Not touched before there are pixels to put in: the claim may be false.
  const auto raster =
      std::make_unique_for_overwrite<uint32_t[]>(size_t{header.width} * header.height);
  uint16_t orientation = ORIENTATION_TOPLEFT;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &orientation);
  if (TIFFReadRGBAImageOriented(tiff, header.width, header.height, raster.get(), orientation, 1) ==
      0) {
    return Failure(source);
  }
  for (int y = 0; y < canvas.height(); ++y) {
    uint8_t* out = canvas.room();
    const uint32_t* const row = raster.get() + static_cast<size_t>(y) * header.width;
    for (uint32_t x = 0; x < header.width; ++x) {
      *out++ = static_cast<uint8_t>(TIFFGetR(row[x]));
      *out++ = static_cast<uint8_t>(TIFFGetG(row[x]));
      *out++ = static_cast<uint8_t>(TIFFGetB(row[x]));
    }
    canvas.PutRgb(y, canvas.room());
  }
  return absl::OkStatus();
}

int OrientationOf(TIFF* tiff) {
  uint16_t orientation = 0;
  if (TIFFGetField(tiff, TIFFTAG_ORIENTATION, &orientation) != 0) {
    return orientation >= 1 && orientation <= 8 ? orientation : 1;
  }
  uint32_t count = 0;
  void* text = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_XMLPACKET, &count, &text) == 0) return 1;
  return Orientation({}, {static_cast<const uint8_t*>(text), count});
}
}  // namespace

StatusOr<Decoded> DecodeTiff(std::span<const uint8_t> encoded, const DecodeRules& rules,
                             ByteBuffer& pixels) {
  Source source{encoded};
  const Tiff tiff = Open(source);
  if (tiff == nullptr) return Failure(source);
  Header header = ReadHeader(tiff.get());
  RETURN_IF_ERROR(CheckClaim("TIFF", header.width, header.height, rules.max_pixels));
  RETURN_IF_ERROR(CheckCoding(tiff.get(), header));

  const bool is_ycc = header.photometric == PHOTOMETRIC_YCBCR;
  const bool is_jpeg = header.compression == COMPRESSION_JPEG;
  if (is_ycc && is_jpeg && header.planar == PLANARCONFIG_CONTIG) {
    TIFFSetField(tiff.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  } else if (is_ycc) {
    const Canvas canvas(pixels, rules, header.width, header.height, size_t{3} * header.width);
    RETURN_IF_ERROR(ReadMixed(tiff.get(), header, source, rules, canvas));
    return Decoded{canvas.image(), OrientationOf(tiff.get())};
  }
  Palette palette = {};
  if (header.photometric == PHOTOMETRIC_PALETTE) {
    ASSIGN_OR_RETURN(palette, ColorsOf(tiff.get(), header));
  } else if (header.bits <= 8) {
    palette = GreyOf(header);
  }
  Reader reader(tiff.get(), header, source, rules);
  const size_t row_bytes = reader.row_bytes();
  const Canvas canvas(pixels, rules, header.width, header.height,
                      row_bytes * header.height + header.width);
  uint8_t* const rows = canvas.room();
  RETURN_IF_ERROR(reader.Read(rows));
  const std::span<uint8_t> unpacked(rows + row_bytes * header.height, header.width);
  for (int y = 0; y < canvas.height(); ++y) {
    PutRow(canvas, y, rows + row_bytes * static_cast<size_t>(y), header, reader.samples(), palette,
           unpacked);
  }
  return Decoded{canvas.image(), OrientationOf(tiff.get())};
}

}  // namespace loaderd::transform
