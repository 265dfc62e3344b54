// SPDX-License-Identifier: Apache-2.0
#include "server/transform/jpeg_decoder.h"

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE and size_t before it
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/transform/canvas.h"
#include "server/transform/orientation.h"

namespace loaderd::transform {
namespace {
// Encoders write ten or so; each scan costs a pass over all coefficients, so a small file could
// keep a core busy for hours.
constexpr int kMaxScans = 500;
constexpr unsigned kStepsBetweenLooks = 16;  // at the clock
constexpr int kRowsAtOnce = 4;  // as many as libjpeg gives in one call with the samplings in use

// Memory for one image after the other in place of libjpeg's own, which asks malloc for each. What
// does not fit goes to libjpeg's, and fits next time. (Its virtual arrays, which progressive files
// need, always do.) Laid out as libjpeg's SIMD code wants it.
class Arena {
 public:
  // Takes over from the manager of a decoder that has just been created: all that is asked for from
  // now on lives until Reset().
  void Serve(jpeg_decompress_struct& info) {
    own_ = *info.mem;
    info.mem->alloc_small = [](j_common_ptr i, int, size_t bytes) { return Of(i).Take(i, bytes); };
    info.mem->alloc_large = info.mem->alloc_small;
    info.mem->alloc_sarray = Rows<JSAMPARRAY>;
    info.mem->alloc_barray = Rows<JBLOCKARRAY>;
    info.mem->free_pool = [](j_common_ptr i, int pool) {
      Of(i).Reset();
      Of(i).own_.free_pool(i, pool);
    };
  }

 private:
  static constexpr size_t kAlign = 64;
  static constexpr size_t kMostKept = size_t{4} << 20;

  static Arena& Of(j_common_ptr info);

  void* Take(j_common_ptr info, size_t bytes) {
    bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    asked_ += bytes;
    if (bytes > left_) return own_.alloc_large(info, JPOOL_IMAGE, bytes);
    left_ -= bytes;
    return std::exchange(next_, next_ + bytes);
  }

  // A two-dimensional array: the pointers to its rows, then the rows.
  template <typename Array>
  static Array Rows(j_common_ptr info, int, JDIMENSION width, JDIMENSION rows) {
    using Row = std::remove_pointer_t<Array>;
    const size_t bytes = sizeof(std::remove_pointer_t<Row>) * width;
    const size_t stride = (bytes + kAlign - 1) / kAlign * kAlign;
    auto* const array = static_cast<Array>(Of(info).Take(info, sizeof(Row) * rows));
    auto* data = static_cast<uint8_t*>(Of(info).Take(info, stride * rows));
    for (JDIMENSION i = 0; i < rows; ++i, data += stride) array[i] = reinterpret_cast<Row>(data);
    return array;
  }

  // Nothing that was taken is in use.
  void Reset() {
    const size_t wanted = std::min(asked_, kMostKept) + kAlign;
    if (wanted > bytes_.capacity()) bytes_.Resize(wanted);
    const std::span<uint8_t> all = bytes_.Resize(bytes_.capacity());
    const size_t skip = kAlign - reinterpret_cast<uintptr_t>(all.data()) % kAlign;
    next_ = all.data() + skip;
    left_ = all.size() - skip;
    asked_ = 0;
  }

  jpeg_memory_mgr own_ = {};
  ByteBuffer bytes_;
  uint8_t* next_ = nullptr;
  size_t left_ = 0;
  size_t asked_ = 0;
};

// What is set back for each image.
struct Progress {
  int header = JPEG_SUSPENDED;
  bool done = false;
  bool too_many_scans = false;
  bool is_late = false;
  unsigned steps = 0;
  bool is_direct = false;  // libjpeg gives what the canvas takes
  const Canvas* canvas = nullptr;
  const DecodeDeadline* deadline = nullptr;
  int reduction = 1;
  Box part;  // that is read of what libjpeg gives; all rows and columns unless it is cut
};

// All that libjpeg's callbacks and the guarded functions share. They hold nothing that has a
// destructor: a longjmp runs none.
struct Decoder {
  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  jpeg_source_mgr source = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf jump = {};
  Arena arena;
  Progress image;
};

Decoder& Of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

Arena& Arena::Of(j_common_ptr info) { return transform::Of(info).arena; }

[[noreturn]] void OnError(j_common_ptr info) { std::longjmp(Of(info).jump, 1); }
void OnMessage(j_common_ptr) {}  // warnings are counted by libjpeg and tolerated, as Pillow does

// Called for each row of blocks in each scan.
void OnProgress(j_common_ptr info) {
  Decoder& decoder = Of(info);
  decoder.image.too_many_scans = decoder.info.input_scan_number > kMaxScans;
  // For each row of pixels as well: asking the clock would be a fair part of reading them.
  if (++decoder.image.steps % kStepsBetweenLooks == 0) {
    decoder.image.is_late = decoder.image.deadline->passed();
  }
  if (decoder.image.too_many_scans || decoder.image.is_late) std::longjmp(decoder.jump, 1);
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

void Create(Decoder& decoder) {
  jpeg_create_decompress(&decoder.info);
  decoder.arena.Serve(decoder.info);
}

void ReadHeader(Decoder& decoder) {
  jpeg_decompress_struct& info = decoder.info;
  jpeg_abort_decompress(&info);
  // The tables of the image before lay in the arena. And a file without its own must fail.
  std::memset(info.quant_tbl_ptrs, 0, sizeof(info.quant_tbl_ptrs));
  std::memset(info.dc_huff_tbl_ptrs, 0, sizeof(info.dc_huff_tbl_ptrs));
  std::memset(info.ac_huff_tbl_ptrs, 0, sizeof(info.ac_huff_tbl_ptrs));
  info.src = &decoder.source;
  info.progress = &decoder.progress;
  do {
    decoder.image.header = jpeg_read_header(&info, FALSE);
  } while (decoder.image.header == JPEG_HEADER_TABLES_ONLY);
}

void Start(Decoder& decoder) {
  decoder.info.dct_method = JDCT_ISLOW;
  decoder.info.do_fancy_upsampling = TRUE;
  decoder.info.scale_num = 1;
  decoder.info.scale_denom = static_cast<unsigned>(decoder.image.reduction);
  decoder.image.done = jpeg_start_decompress(&decoder.info);
}

// Keeps `part` and, to its sides, what libjpeg does not leave out.
void Cut(Decoder& decoder) {
  Box& part = decoder.image.part;
  auto left = static_cast<JDIMENSION>(part.left);
  auto width = static_cast<JDIMENSION>(part.width);
  if (width < decoder.info.output_width) jpeg_crop_scanline(&decoder.info, &left, &width);
  part.left = static_cast<int>(left);
  part.width = static_cast<int>(width);
  if (part.top > 0) jpeg_skip_scanlines(&decoder.info, static_cast<JDIMENSION>(part.top));
}

void ReadRows(Decoder& decoder) {
  decoder.image.done = false;
  const Canvas& canvas = *decoder.image.canvas;
  const Box& part = decoder.image.part;
  const auto end = static_cast<JDIMENSION>(part.top + part.height);
  while (decoder.info.output_scanline < end) {
    const int y = static_cast<int>(decoder.info.output_scanline) - part.top;
    if (decoder.image.is_direct) {
      const JDIMENSION count =
          std::min<JDIMENSION>(kRowsAtOnce, end - decoder.info.output_scanline);
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
  decoder.image.done = true;
}

// All rows are there: whether an end marker follows is no matter, but what libjpeg calls an error
// on the way to it is one.
void Finish(Decoder& decoder) { jpeg_finish_decompress(&decoder.info); }

Status Failure(Decoder& decoder) {
  if (decoder.image.is_late) return TookTooLong("JPEG", *decoder.image.deadline);
  if (decoder.image.too_many_scans) {
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
constexpr uint8_t kEnd = 0xD9;

bool EndsWithMarker(std::span<const uint8_t> encoded) {
  return encoded.size() >= 2 && encoded[encoded.size() - 2] == 0xFF && encoded.back() == kEnd;
}

// Where leaving out is the same as cutting the whole image: one scan of Huffman codes with the
// usual samplings. The end marker keeps libjpeg, which cannot wait for more bytes while it skips
// rows, from running out of them.
bool MayLeaveOut(const Decoder& decoder, std::span<const uint8_t> encoded) {
  const jpeg_decompress_struct& info = decoder.info;
  if (!decoder.image.is_direct || info.progressive_mode || info.arith_code ||
      info.comps_in_scan != info.num_components || !EndsWithMarker(encoded)) {
    return false;
  }
  const auto sampled = [](const jpeg_component_info& component, int most) {
    return component.h_samp_factor >= 1 && component.h_samp_factor <= most &&
           component.v_samp_factor >= 1 && component.v_samp_factor <= most;
  };
  if (info.num_components == 1) return sampled(info.comp_info[0], 1);
  return info.num_components == 3 && sampled(info.comp_info[0], 2) &&
         sampled(info.comp_info[1], 1) && sampled(info.comp_info[2], 1);
}

// The whole image would have had no error after the rows that were read, either: nothing but the
// end marker follows the scan.
bool EndsWell(const jpeg_decompress_struct& info) {
  if (info.err->num_warnings > 0) return false;
  const auto is_restart = [](int marker) { return marker >= 0xD0 && marker <= 0xD7; };
  if (info.unread_marker != 0 && !is_restart(info.unread_marker)) {
    return info.unread_marker == kEnd;
  }
  const uint8_t* next = info.src->next_input_byte;
  const uint8_t* const end = next + info.src->bytes_in_buffer;
  while ((next = static_cast<const uint8_t*>(
              std::memchr(next, 0xFF, static_cast<size_t>(end - next)))) != nullptr &&
         ++next != end) {
    const bool is_coded = *next == 0 || *next == 0xFF || is_restart(*next);
    if (!is_coded) return *next == kEnd;
  }
  return false;
}

// One thread's libjpeg.
class JpegState final : public CodecState {
 public:
  ~JpegState() override { jpeg_destroy_decompress(&decoder_.info); }

  Status Open() {
    decoder_.info.err = jpeg_std_error(&decoder_.errors);
    decoder_.info.client_data = &decoder_;
    decoder_.errors.error_exit = OnError;
    decoder_.errors.output_message = OnMessage;
    decoder_.progress.progress_monitor = OnProgress;
    return Guarded(decoder_, Create) ? absl::OkStatus() : Failure(decoder_);
  }

  StatusOr<Decoded> Decode(std::span<const uint8_t> encoded, const DecodeRules& rules,
                           ByteBuffer& pixels);

 private:
  Status Begin(std::span<const uint8_t> encoded, const DecodeRules& rules);
  StatusOr<Image> Read(std::span<const uint8_t> encoded, const DecodeRules& rules,
                       const PartChooser::Part* part, ByteBuffer& pixels);

  Decoder decoder_;
};

// Up to the image data.
Status JpegState::Begin(std::span<const uint8_t> encoded, const DecodeRules& rules) {
  decoder_.image = Progress{};
  decoder_.image.deadline = rules.deadline;
  decoder_.source = {.next_input_byte = encoded.data(),
                     .bytes_in_buffer = encoded.size(),
                     .init_source = OnSourceEdge,
                     .fill_input_buffer = OnNoMoreInput,
                     .skip_input_data = OnSkip,
                     .resync_to_restart = jpeg_resync_to_restart,
                     .term_source = OnSourceEdge};
  if (!Guarded(decoder_, ReadHeader)) return Failure(decoder_);
  if (decoder_.image.header == JPEG_SUSPENDED) {
    return Truncated("JPEG", encoded.size(), "before the image data");
  }
  RETURN_IF_ERROR(CheckHeader(decoder_, rules.max_pixels));
  jpeg_decompress_struct& info = decoder_.info;
  const bool is_grey = info.num_components == 1 && rules.mode == ImageMode::kL;
  info.out_color_space = is_grey ? JCS_GRAYSCALE : info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  decoder_.image.is_direct = is_grey || (rules.mode == ImageMode::kRgb && info.num_components != 4);
  return absl::OkStatus();
}

// The rows of the image, or those of a part of it.
StatusOr<Image> JpegState::Read(std::span<const uint8_t> encoded, const DecodeRules& rules,
                                const PartChooser::Part* part, ByteBuffer& pixels) {
  jpeg_decompress_struct& info = decoder_.info;
  Progress& image = decoder_.image;
  if (part != nullptr) image.reduction = part->reduction;
  if (!Guarded(decoder_, Start)) return Failure(decoder_);
  if (!image.done) return Truncated("JPEG", encoded.size(), "before the last scan");
  image.part = {.height = static_cast<int>(info.output_height),
                .width = static_cast<int>(info.output_width)};
  if (part != nullptr) {
    image.part = part->box;
    if (!Guarded(decoder_, Cut)) return Failure(decoder_);
  }
  const size_t room = image.is_direct ? 0 : size_t{4} * info.output_width;
  const Canvas canvas(pixels, rules, info.output_width, static_cast<uint64_t>(image.part.height),
                      room);
  image.canvas = &canvas;
  if (!Guarded(decoder_, ReadRows)) return Failure(decoder_);
  if (!image.done) {
    return Truncated("JPEG", encoded.size(),
                     absl::StrCat("in row ", info.output_scanline, " of ", info.output_height));
  }
  if (part == nullptr && !Guarded(decoder_, Finish)) return Failure(decoder_);
  return canvas.image();
}

StatusOr<Decoded> JpegState::Decode(std::span<const uint8_t> encoded, const DecodeRules& rules,
                                    ByteBuffer& pixels) {
  RETURN_IF_ERROR(Begin(encoded, rules));
  const int orientation = rules.exif_transpose ? OrientationOf(encoded) : 1;
  const Size whole = {static_cast<int>(decoder_.info.image_height),
                      static_cast<int>(decoder_.info.image_width)};
  if (rules.parts != nullptr && orientation == 1 && MayLeaveOut(decoder_, encoded)) {
    PartChooser::Part part = rules.parts->Choose(whole);
    const Size reduced = ReducedSize(whole, part.reduction);
    // Upsampling looks at neighbours: one column of blocks more on either side.
    const int margin = decoder_.info.max_h_samp_factor * DCTSIZE;
    const int right = std::min(part.box.left + part.box.width + margin, reduced.width);
    part.box.left = std::max(part.box.left - margin, 0);
    part.box.width = right - part.box.left;
    if (part.reduction > 1 || part.box.height < whole.height || part.box.width < whole.width) {
      const StatusOr<Image> image = Read(encoded, rules, &part, pixels);
      if (image.ok() && EndsWell(decoder_.info)) {
        return Decoded{*image, 1, true, whole, part.reduction, decoder_.image.part};
      }
      RETURN_IF_ERROR(Begin(encoded, rules));  // as a whole, whatever comes of it
    }
  }
  ASSIGN_OR_RETURN(const Image image, Read(encoded, rules, nullptr, pixels));
  return Decoded{.image = image, .orientation = orientation};
}
}  // namespace

StatusOr<Decoded> DecodeJpeg(std::span<const uint8_t> encoded, const DecodeRules& rules,
                             ByteBuffer& pixels) {
  std::unique_ptr<CodecState> once;
  std::unique_ptr<CodecState>& state = rules.jpeg != nullptr ? *rules.jpeg : once;
  if (state == nullptr) {
    auto opened = std::make_unique<JpegState>();
    RETURN_IF_ERROR(opened->Open());
    state = std::move(opened);
  }
  StatusOr<Decoded> decoded = static_cast<JpegState&>(*state).Decode(encoded, rules, pixels);
  // libjpeg has left by a jump, perhaps: begin anew.
  if (!decoded.ok()) state.reset();
  return decoded;
}

}  // namespace loaderd::transform
