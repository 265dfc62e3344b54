// SPDX-License-Identifier: Apache-2.0
#include "server/transform/orientation.h"

#include <cstddef>
#include <cstring>
#include <string_view>

namespace loaderd::transform {
namespace {
constexpr uint32_t kOrientationTag = 0x112;
constexpr size_t kEntryBytes = 12;

// A TIFF directory in memory. Reads past the end are the caller's to prevent.
class Tiff {
 public:
  Tiff(std::span<const uint8_t> bytes, bool is_big_endian)
      : bytes_(bytes), is_big_endian_(is_big_endian) {}
  size_t size() const { return bytes_.size(); }
  uint32_t Get(size_t at, size_t count) const {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      value = value << 8 | bytes_[is_big_endian_ ? at + i : at + count - 1 - i];
    }
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool is_big_endian_;
};

// Bytes of one value of a TIFF type; 0 for a type that does not exist.
uint64_t BytesOf(uint32_t type) {
  static constexpr uint8_t kBytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

// The value of an entry when it is one integer in the entry itself.
std::optional<int64_t> OneInteger(const Tiff& tiff, size_t entry, uint32_t type) {
  switch (type) {
    case 3: return tiff.Get(entry + 8, 2);
    case 8: return static_cast<int16_t>(tiff.Get(entry + 8, 2));
    case 4:
    case 13: return tiff.Get(entry + 8, 4);
    case 6: return static_cast<int8_t>(tiff.Get(entry + 8, 1));
    case 9: return static_cast<int32_t>(tiff.Get(entry + 8, 4));
    default: return -1;  // some other kind of value: present, and no orientation
  }
}
}  // namespace

std::optional<int64_t> ExifOrientation(std::span<const uint8_t> exif) {
  for (int i = 0; i < 2 && exif.size() >= 6 && std::memcmp(exif.data(), "Exif\0\0", 6) == 0; ++i) {
    exif = exif.subspan(6);
  }
  if (exif.size() < 8) return std::nullopt;
  const bool is_big_endian = std::memcmp(exif.data(), "MM\0*", 4) == 0;
  if (!is_big_endian && std::memcmp(exif.data(), "II*\0", 4) != 0) return std::nullopt;
  const Tiff tiff(exif, is_big_endian);
  uint64_t entry = tiff.Get(4, 4);
  if (entry + 2 > tiff.size()) return std::nullopt;
  std::optional<int64_t> found;
  const uint32_t count = tiff.Get(entry, 2);
  entry += 2;
  for (uint32_t i = 0; i < count; ++i, entry += kEntryBytes) {
    if (entry + kEntryBytes > tiff.size()) break;
    const uint32_t type = tiff.Get(entry + 2, 2);
    const uint64_t values = tiff.Get(entry + 4, 4);
    const uint64_t bytes = values * BytesOf(type);
    if (bytes == 0) continue;
    // Pillow reads no further than to the first value that lies outside.
    if (bytes > 4 && tiff.Get(entry + 8, 4) + bytes > tiff.size()) break;
    if (tiff.Get(entry, 2) != kOrientationTag) continue;
    found = values == 1 ? OneInteger(tiff, entry, type) : -1;
  }
  return found;
}

std::optional<int64_t> XmpOrientation(std::span<const uint8_t> xmp) {
  const std::string_view text(reinterpret_cast<const char*>(xmp.data()), xmp.size());
  static constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = text.find(kName); at != text.npos; at = text.find(kName, at + 1)) {
    std::string_view rest = text.substr(at + kName.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return std::nullopt;
}

int Orientation(std::span<const uint8_t> exif, std::span<const uint8_t> xmp) {
  std::optional<int64_t> found = ExifOrientation(exif);
  if (!found) found = XmpOrientation(xmp);
  return found && *found >= 1 && *found <= 8 ? static_cast<int>(*found) : 1;
}

Image Upright(const Image& image, int orientation, ByteBuffer& memory) {
  if (orientation == 1) return image;
  // Bits: does the result's first pixel come from the right, from the bottom; are x and y swapped?
  struct Turn {
    bool from_right, from_bottom, is_swapped;
  };
  static constexpr Turn kTurns[] = {
      {false, false, false}, {true, false, false}, {true, true, false}, {false, true, false},
      {false, false, true},  {false, true, true},  {true, true, true},  {true, false, true}};
  const Turn turn = kTurns[orientation - 1];
  const auto channels = static_cast<ptrdiff_t>(image.channels);
  const auto stride = static_cast<ptrdiff_t>(image.stride);
  const uint8_t* first = image.data + (turn.from_bottom ? stride * (image.height - 1) : 0) +
                         (turn.from_right ? channels * (image.width - 1) : 0);
  const ptrdiff_t along = turn.from_right ? -channels : channels;  // one pixel on in the image
  const ptrdiff_t down = turn.from_bottom ? -stride : stride;
  const int height = turn.is_swapped ? image.width : image.height;
  const int width = turn.is_swapped ? image.height : image.width;
  uint8_t* out = memory.Resize(image.Bytes()).data();
  const Image result = Contiguous(out, height, width, image.channels);
  for (ptrdiff_t y = 0; y < height; ++y) {
    const uint8_t* const row = first + y * (turn.is_swapped ? along : down);
    for (ptrdiff_t x = 0; x < width; ++x) {
      const uint8_t* const pixel = row + x * (turn.is_swapped ? down : along);
      for (ptrdiff_t c = 0; c < channels; ++c) *out++ = pixel[c];
    }
  }
  return result;
}

}  // namespace loaderd::transform
