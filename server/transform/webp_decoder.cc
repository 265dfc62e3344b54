// SPDX-License-Identifier: Apache-2.0
#include "server/transform/webp_decoder.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "server/transform/canvas.h"
#include "server/transform/orientation.h"

namespace loaderd::transform {
namespace {
using Demuxer = std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)>;

struct Frame {
  WebPIterator at{};
  ~Frame() { WebPDemuxReleaseIterator(&at); }
};

std::span<const uint8_t> ChunkOf(const WebPDemuxer* demuxer, const char* name) {
  std::span<const uint8_t> bytes;
  WebPChunkIterator chunk;
  if (WebPDemuxGetChunk(demuxer, name, 1, &chunk) != 0) {
    bytes = {chunk.chunk.bytes, chunk.chunk.size};  // in the encoded bytes themselves
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return bytes;
}

// Black where the frame does not reach, when it is there: a large canvas may be all that a damaged
// file has.
void ClearAround(const WebPIterator& frame, uint8_t* rgb, size_t row_bytes, size_t rows) {
  const auto left = size_t{3} * static_cast<size_t>(frame.x_offset);
  const auto right = left + size_t{3} * static_cast<size_t>(frame.width);
  const auto top = static_cast<size_t>(frame.y_offset);
  const auto bottom = top + static_cast<size_t>(frame.height);
  std::memset(rgb, 0, row_bytes * top);
  for (size_t y = top; y < bottom; ++y) {
    std::memset(rgb + row_bytes * y, 0, left);
    std::memset(rgb + row_bytes * y + right, 0, row_bytes - right);
  }
  std::memset(rgb + row_bytes * bottom, 0, row_bytes * (rows - bottom));
}

Status Failure(VP8StatusCode code, size_t bytes) {
  switch (code) {
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA: return Truncated("WebP", bytes, "in the image data");
    case VP8_STATUS_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError("no memory to decode a WebP");
    case VP8_STATUS_UNSUPPORTED_FEATURE: return CannotDecode("WebP", "it has unknown features");
    default: return CannotDecode("WebP", absl::StrCat("it is damaged (", code, ")"));
  }
}
}  // namespace

StatusOr<Decoded> DecodeWebp(std::span<const uint8_t> encoded, const DecodeRules& rules,
                             ByteBuffer& pixels) {
  WebPBitstreamFeatures features;
  VP8StatusCode code = WebPGetFeatures(encoded.data(), encoded.size(), &features);
  if (code != VP8_STATUS_OK) return Failure(code, encoded.size());
  RETURN_IF_ERROR(CheckClaim("WebP", static_cast<uint64_t>(features.width),
                             static_cast<uint64_t>(features.height), rules.max_pixels));
  const WebPData data = {.bytes = encoded.data(), .size = encoded.size()};
  WebPDemuxState state;
  const Demuxer demuxer(WebPDemuxPartial(&data, &state), WebPDemuxDelete);
  if (demuxer == nullptr || state == WEBP_DEMUX_PARSE_ERROR) {
    return CannotDecode("WebP", "its chunks are damaged");
  }
  if (state != WEBP_DEMUX_DONE) return Truncated("WebP", encoded.size(), "in a chunk");
  Frame frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame.at) == 0) {
    return CannotDecode("WebP", "it has no frame");
  }
  const WebPData& fragment = frame.at.fragment;
  const uint32_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  const uint32_t height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  RETURN_IF_ERROR(CheckClaim("WebP", width, height, rules.max_pixels));
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) {
    return absl::InternalError("the WebP library is not the one that this was built for");
  }
  code = WebPGetFeatures(fragment.bytes, fragment.size, &config.input);
  if (code != VP8_STATUS_OK) return Failure(code, encoded.size());
  if (config.input.width != frame.at.width || config.input.height != frame.at.height ||
      frame.at.x_offset + frame.at.width > static_cast<int>(width) ||
      frame.at.y_offset + frame.at.height > static_cast<int>(height)) {
    return CannotDecode("WebP", "its first frame is not of the size that it claims");
  }

  const size_t rgb_bytes = size_t{3} * width;
  const size_t room = rules.mode == ImageMode::kL ? rgb_bytes * height : 0;
  const Canvas canvas(pixels, rules, width, height, room);
  uint8_t* const rgb = room != 0 ? canvas.room() : canvas.Row(0);
  const size_t begin = rgb_bytes * static_cast<size_t>(frame.at.y_offset) +
                       size_t{3} * static_cast<size_t>(frame.at.x_offset);
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = rgb + begin,
                          .stride = static_cast<int>(rgb_bytes),
                          .size = rgb_bytes * height - begin};
  code = WebPDecode(fragment.bytes, fragment.size, &config);
  if (code != VP8_STATUS_OK) return Failure(code, encoded.size());
  ClearAround(frame.at, rgb, rgb_bytes, height);
  for (int y = 0; room != 0 && y < canvas.height(); ++y) {
    canvas.PutRgb(y, rgb + rgb_bytes * static_cast<size_t>(y));
  }
  Decoded decoded{canvas.image()};
  if (rules.exif_transpose) {
    decoded.orientation =
        Orientation(ChunkOf(demuxer.get(), "EXIF"), ChunkOf(demuxer.get(), "XMP "));
  }
  return decoded;
}

}  // namespace loaderd::transform
