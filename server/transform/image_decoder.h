// SPDX-License-Identifier: Apache-2.0
// Encoded bytes to pixels: which codec reads them is told from their content, never from a name.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "server/base/byte_buffer.h"
#include "server/base/clock.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/transform/image.h"

namespace loaderd::transform {

// Until when one sample may be decoded. Codecs that can be stopped ask every few rows.
class DecodeDeadline {
 public:
  DecodeDeadline(const Clock& clock, uint64_t max_ms)
      : clock_(clock), max_ms_(max_ms), end_(clock.Now() + std::chrono::milliseconds(max_ms)) {}
  bool passed() const { return clock_.Now() > end_; }
  uint64_t max_ms() const { return max_ms_; }

 private:
  const Clock& clock_;
  const uint64_t max_ms_;
  const Clock::Time end_;
};

// Says which part of an image is needed, once its size is known.
class PartChooser {
 public:
  struct Part {
    int reduction = 1;  // 1, 2, 4 or 8: of the image with sides divided by so much, rounded up
    Box box;            // lies in it and is not empty
  };
  virtual ~PartChooser() = default;
  // Asked once an image, if at all.
  virtual Part Choose(Size image) = 0;
};

// What a codec keeps from image to image, so that it need not ask for memory again.
class CodecState {
 public:
  virtual ~CodecState() = default;
};

struct DecodeRules {
  ImageMode mode = ImageMode::kRgb;
  WideMode wide = WideMode::kScale;
  bool exif_transpose = false;
  uint64_t max_pixels = 0;
  const DecodeDeadline* deadline = nullptr;     // outlives the call; not null
  PartChooser* parts = nullptr;                 // null: the whole image is needed
  std::unique_ptr<CodecState>* jpeg = nullptr;  // the thread's; null: nothing is kept
};

struct Decoded {
  Image image;
  int orientation = 1;  // EXIF's, 1 to 8: how the image is still to be turned; 1 unless asked for
  // Where a codec left out what nobody needs: the whole image's size, by how much it was reduced
  // (not equal to the reference then, only close), and where `image` lies in the reduced one.
  // Errors, and the pixels that are there, are those of the whole.
  bool is_part = false;
  Size whole = {};
  int reduction = 1;
  Box box = {};
};

// One codec: a file of its own, and the only one that includes its library's headers. `encoded` is
// not empty and begins as the codec's files do. Any thread.
using DecodeFunction = StatusOr<Decoded> (*)(std::span<const uint8_t> encoded,
                                             const DecodeRules& rules, ByteBuffer& pixels);

// Decodes an image into `pixels`, with the result of Pillow's Image.open(file).convert("RGB" or
// "L"), bit for bit, the first frame of an animation; 16-bit grey as `rules.wide` says. What Pillow
// refuses is kDataLoss with the reason: an unknown format, truncated data, an unsupported coding.
// So is an image of more than `max_pixels` (refused before memory is taken for it), and one that is
// not done at the deadline, where the codec can be stopped (JPEG, PNG, GIF, TIFF). The view lives
// in `pixels`. Any thread.
StatusOr<Decoded> DecodeImage(std::span<const uint8_t> encoded, const DecodeRules& rules,
                              ByteBuffer& pixels);

// The size of an image with its sides divided by `reduction`, as libjpeg rounds them.
inline Size ReducedSize(Size size, int reduction) {
  return {(size.height + reduction - 1) / reduction, (size.width + reduction - 1) / reduction};
}

// What every codec asks before it takes memory: kDataLoss for an empty image and for one of more
// than `max_pixels`, or an edge of more than 16,777,216.
Status CheckClaim(const char* format, uint64_t width, uint64_t height, uint64_t max_pixels);

// The errors that all codecs have.
Status CannotDecode(const char* format, const std::string& why);
Status Truncated(const char* format, size_t bytes, const std::string& where);
Status TookTooLong(const char* format, const DecodeDeadline& deadline);

}  // namespace loaderd::transform
