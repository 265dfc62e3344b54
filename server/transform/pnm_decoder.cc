// SPDX-License-Identifier: Apache-2.0
#include "server/transform/pnm_decoder.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/transform/canvas.h"

namespace loaderd::transform {
namespace {
constexpr size_t kMaxTokenBytes = 10;
constexpr int kMaxValue = 65535;
constexpr int kRowsBetweenLooks = 16;

bool IsSpace(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Numbers in text. A comment goes with its line's end, so that digits before and after it are one
// number, as Pillow reads them.
class Tokens {
 public:
  explicit Tokens(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // The next number, or -1 at the end, or -2 for what is no number.
  int64_t Next() {
    int64_t value = 0;
    size_t digits = 0;
    for (; at_ < bytes_.size(); ++at_) {
      const uint8_t c = bytes_[at_];
      if (c == '#') {
        SkipComment();
        continue;
      }
      if (IsSpace(c)) {
        if (digits == 0) continue;
        ++at_;
        return value;
      }
      if (c < '0' || c > '9' || ++digits > kMaxTokenBytes) return -2;
      value = value * 10 + (c - '0');
    }
    return digits == 0 ? -1 : value;
  }

  // The next character that is neither space nor comment, or 0 at the end.
  uint8_t NextCharacter() {
    for (; at_ < bytes_.size(); ++at_) {
      if (bytes_[at_] == '#') {
        SkipComment();
      } else if (!IsSpace(bytes_[at_])) {
        return bytes_[at_++];
      }
    }
    return 0;
  }

  std::span<const uint8_t> rest() const { return bytes_.subspan(std::min(at_, bytes_.size())); }

 private:
  // To the line's end, which the caller's loop steps over.
  void SkipComment() {
    while (at_ < bytes_.size() && bytes_[at_] != '\n' && bytes_[at_] != '\r') ++at_;
  }

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

struct Header {
  int kind = 0;  // 1 to 6, as in P1 to P6
  uint64_t width = 0;
  uint64_t height = 0;
  int max_value = 1;
  bool is_plain() const { return kind <= 3; }
  bool is_bitmap() const { return kind == 1 || kind == 4; }
  bool is_rgb() const { return kind == 3 || kind == 6; }
  // Pillow keeps grey of more than 8 bits, which is then "wide"; colour becomes 8 bits.
  bool is_wide() const { return !is_rgb() && max_value > 255; }
};

StatusOr<Header> ReadHeader(Tokens& tokens, int kind, size_t bytes) {
  Header header{.kind = kind};
  int64_t numbers[3] = {0, 0, 1};
  for (int i = 0; i < (header.is_bitmap() ? 2 : 3); ++i) {
    numbers[i] = tokens.Next();
    if (numbers[i] == -1) return Truncated("PNM", bytes, "in the header");
    if (numbers[i] < 0) return CannotDecode("PNM", "its header holds what is no number");
  }
  if (numbers[2] < 1 || numbers[2] > kMaxValue) {
    return CannotDecode("PNM",
                        absl::StrCat("its greatest value must be 1 to 65535, is ", numbers[2]));
  }
  header.width = static_cast<uint64_t>(numbers[0]);
  header.height = static_cast<uint64_t>(numbers[1]);
  header.max_value = static_cast<int>(numbers[2]);
  return header;
}

// Samples one after the other, scaled to 8 bits, or to 16 where the image is wide.
class Samples {
 public:
  Samples(const Header& header, Tokens& tokens)
      : header_(header), tokens_(tokens), raw_(tokens.rest()), scaled_(Scale(header)) {}

  // Fills `row` with `count` samples, wide ones in the machine's order.
  Status Read(uint8_t* row, size_t count, size_t bytes) {
    for (size_t i = 0; i < count; ++i) {
      int64_t value = header_.is_plain() ? tokens_.Next() : NextRaw();
      if (value == -1) return Truncated("PNM", bytes, "in the image data");
      if (value < 0) return CannotDecode("PNM", "its samples hold what is no number");
      if (value > header_.max_value) {
        if (header_.is_plain()) {
          return CannotDecode("PNM", absl::StrCat("a sample of ", value, " is over its limit of ",
                                                  header_.max_value));
        }
        value = header_.max_value;
      }
      const uint16_t scaled = scaled_[static_cast<size_t>(value)];
      if (header_.is_wide()) {
        row[2 * i] = static_cast<uint8_t>(scaled & 0xFF);
        row[2 * i + 1] = static_cast<uint8_t>(scaled >> 8);
      } else {
        row[i] = static_cast<uint8_t>(scaled);
      }
    }
    return absl::OkStatus();
  }

 private:
  // Python's round(value / max_value * out_max): half to even.
  static std::vector<uint16_t> Scale(const Header& header) {
    const double out_max = header.is_wide() ? 65535 : 255;
    std::vector<uint16_t> scaled(static_cast<size_t>(header.max_value) + 1);
    for (size_t value = 0; value < scaled.size(); ++value) {
      const double part = static_cast<double>(value) / header.max_value;
      scaled[value] = static_cast<uint16_t>(std::nearbyint(part * out_max));
    }
    return scaled;
  }

  int64_t NextRaw() {
    const size_t bytes = header_.max_value > 255 ? 2 : 1;
    if (raw_.size() < bytes) return -1;
    const int value = bytes == 2 ? raw_[0] << 8 | raw_[1] : raw_[0];
    raw_ = raw_.subspan(bytes);
    return value;
  }

  const Header& header_;
  Tokens& tokens_;
  std::span<const uint8_t> raw_;
  const std::vector<uint16_t> scaled_;
};

Status ReadBitmap(const Canvas& canvas, const Header& header, Tokens& tokens, size_t bytes) {
  uint8_t* const row = canvas.room();
  const auto width = static_cast<size_t>(canvas.width());
  std::span<const uint8_t> raw = tokens.rest();
  const size_t row_bytes = (width + 7) / 8;
  for (int y = 0; y < canvas.height(); ++y) {
    if (header.is_plain()) {
      for (size_t x = 0; x < width; ++x) {
        const uint8_t c = tokens.NextCharacter();
        if (c == 0) return Truncated("PNM", bytes, "in the image data");
        if (c != '0' && c != '1') return CannotDecode("PNM", "its bits hold what is no bit");
        row[x] = c == '0' ? 255 : 0;
      }
    } else {
      if (raw.size() < row_bytes) return Truncated("PNM", bytes, "in the image data");
      Unpack(raw.data(), 1, {row, width});
      for (size_t x = 0; x < width; ++x) row[x] = row[x] == 0 ? 255 : 0;
      raw = raw.subspan(row_bytes);
    }
    canvas.PutGrey(y, row);
  }
  return absl::OkStatus();
}
}  // namespace

StatusOr<Decoded> DecodePnm(std::span<const uint8_t> encoded, const DecodeRules& rules,
                            ByteBuffer& pixels) {
  if (encoded.size() < 3 || !IsSpace(encoded[2])) {
    return CannotDecode("PNM", "no space follows its first two letters");
  }
  Tokens tokens(encoded.subspan(3));
  ASSIGN_OR_RETURN(const Header header, ReadHeader(tokens, encoded[1] - '0', encoded.size()));
  RETURN_IF_ERROR(CheckClaim("PNM", header.width, header.height, rules.max_pixels));
  const size_t samples = header.width * (header.is_rgb() ? 3 : 1);
  const Canvas canvas(pixels, rules, header.width, header.height, 2 * samples);
  if (header.is_bitmap()) {
    RETURN_IF_ERROR(ReadBitmap(canvas, header, tokens, encoded.size()));
    return Decoded{canvas.image()};
  }
  Samples in(header, tokens);
  for (int y = 0; y < canvas.height(); ++y) {
    if (y % kRowsBetweenLooks == 0 && rules.deadline->passed()) {
      return TookTooLong("PNM", *rules.deadline);
    }
    RETURN_IF_ERROR(in.Read(canvas.room(), samples, encoded.size()));
    if (header.is_wide()) {
      canvas.PutWide(y, canvas.room(), false);
    } else if (header.is_rgb()) {
      canvas.PutRgb(y, canvas.room());
    } else {
      canvas.PutGrey(y, canvas.room());
    }
  }
  return Decoded{canvas.image()};
}

}  // namespace loaderd::transform
