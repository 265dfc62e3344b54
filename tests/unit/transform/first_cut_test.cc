// SPDX-License-Identifier: Apache-2.0
// Decoding only what is needed gives what decoding all of it gives.
#include "server/transform/first_cut.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <iostream>
#include <random>

#include "tests/unit/transform/answers.h"
#include "tests/unit/transform/decoding.h"

namespace loaderd::transform {
namespace {

class FixedPart final : public PartChooser {
 public:
  Part Choose(Size image) override {
    return {.reduction = reduction_, .box = choose_(ReducedSize(image, reduction_))};
  }
  explicit FixedPart(std::function<Box(Size)> choose, int reduction = 1)
      : choose_(std::move(choose)), reduction_(reduction) {}

 private:
  std::function<Box(Size)> choose_;
  const int reduction_;
};

std::vector<std::filesystem::path> JpegFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& folder : {Fixtures(), Fixtures() / "dirty", Shared() / "golden/formats",
                             Shared() / "data/imagenet-sample-400"}) {
    if (!std::filesystem::exists(folder)) {
      std::cout << "without " << folder << ", which is not there\n";
      continue;
    }
    size_t taken = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string ending = entry.path().extension();
      if (entry.is_regular_file() && (ending == ".jpg" || ending == ".JPEG") && taken++ < 100) {
        files.push_back(entry.path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

Box RandomBox(std::mt19937& random, Size in) {
  const auto below = [&](int count) {
    return std::uniform_int_distribution<int>(0, count - 1)(random);
  };
  Box box;
  box.height = 1 + below(in.height);
  box.width = 1 + below(in.width);
  box.top = below(in.height - box.height + 1);
  box.left = below(in.width - box.width + 1);
  return box;
}

bool IsEqual(const Image& a, const Image& b) {
  if (a.height != b.height || a.RowBytes() != b.RowBytes()) return false;
  for (int y = 0; y < a.height; ++y) {
    if (std::memcmp(a.Row(y), b.Row(y), a.RowBytes()) != 0) return false;
  }
  return true;
}

struct Counts {
  int parts = 0, wholes = 0, refused = 0;
};

// Random parts of one file: each is what the whole image has there, and a file that is refused as a
// whole is refused in part, with the same words.
void CompareParts(std::span<const uint8_t> bytes, int boxes, std::mt19937& random,
                  std::unique_ptr<CodecState>& state, Counts& counts) {
  for (const ImageMode mode : {ImageMode::kRgb, ImageMode::kL}) {
    ByteBuffer whole_pixels, part_pixels;
    const StatusOr<Image> whole = DecodePixels(bytes, mode, kMaxPixels, whole_pixels);
    for (int i = 0; i < boxes; ++i) {
      Box box;
      FixedPart part([&](Size in) { return box = RandomBox(random, in); });
      const StatusOr<Decoded> decoded =
          DecodeBy(bytes, {.mode = mode, .max_pixels = kMaxPixels, .parts = &part, .jpeg = &state},
                   part_pixels);
      ASSERT_EQ(decoded.status(), whole.status());
      if (!whole.ok()) {
        ++counts.refused;
        break;
      }
      if (!decoded->is_part) {
        ASSERT_TRUE(IsEqual(decoded->image, *whole));
        ++counts.wholes;
        continue;
      }
      ASSERT_EQ(decoded->whole, (Size{whole->height, whole->width}));
      const Box& got = decoded->box;
      ASSERT_TRUE(got.top <= box.top && got.left <= box.left &&
                  got.top + got.height >= box.top + box.height &&
                  got.left + got.width >= box.left + box.width);
      const Image cut = decoded->image.Crop({.top = box.top - got.top,
                                             .left = box.left - got.left,
                                             .height = box.height,
                                             .width = box.width});
      ASSERT_TRUE(IsEqual(cut, whole->Crop(box)))
          << box.left << "," << box.top << " " << box.width << " x " << box.height;
      ++counts.parts;
    }
  }
}

TEST(FirstCutTest, APartOfAJpegIsWhatTheWholeHasThere) {
  std::mt19937 random(7);
  std::unique_ptr<CodecState> state;  // one for all files, as a thread has it
  Counts counts;
  for (const auto& path : JpegFiles()) {
    SCOPED_TRACE(path);
    CompareParts(ReadBytes(path), 20, random, state, counts);
    if (HasFatalFailure()) return;
  }
  std::cout << counts.parts << " parts, " << counts.wholes << " decoded whole, " << counts.refused
            << " refused\n";
  EXPECT_GT(counts.parts, 100);
  EXPECT_GT(counts.wholes, 100);
  EXPECT_GT(counts.refused, 5);
}

// So it is where the image is reduced.
TEST(FirstCutTest, APartOfAReducedJpegIsWhatTheReducedWholeHasThere) {
  std::mt19937 random(5);
  std::unique_ptr<CodecState> state;
  int compared = 0;
  for (const char* name : {"colour_420.jpg", "colour_422.jpg", "colour_444.jpg", "grey.jpg",
                           "odd.jpg", "restart.jpg", "large.jpg", "tall.jpg", "wide.jpg"}) {
    const std::vector<uint8_t> bytes = Fixture(name);
    for (const int reduction : {2, 4, 8}) {
      SCOPED_TRACE(name + (", reduced by " + std::to_string(reduction)));
      const auto decode = [&](std::function<Box(Size)> choose, ByteBuffer& pixels) {
        FixedPart part(std::move(choose), reduction);
        return *DecodeBy(bytes, {.max_pixels = kMaxPixels, .parts = &part, .jpeg = &state}, pixels);
      };
      ByteBuffer whole_pixels, pixels;
      const Decoded whole =
          decode([](Size in) { return Box{.height = in.height, .width = in.width}; }, whole_pixels);
      ASSERT_TRUE(whole.is_part);
      ASSERT_EQ((Size{whole.image.height, whole.image.width}), ReducedSize(whole.whole, reduction));
      for (int i = 0; i < 20; ++i) {
        Box box;
        const Decoded part = decode([&](Size in) { return box = RandomBox(random, in); }, pixels);
        ASSERT_TRUE(part.is_part);
        const Image cut = part.image.Crop({.top = box.top - part.box.top,
                                           .left = box.left - part.box.left,
                                           .height = box.height,
                                           .width = box.width});
        ASSERT_TRUE(IsEqual(cut, whole.image.Crop(box)));
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 9 * 3 * 20);
}

// Damage of all kinds, with and without an end marker: the part must be right or refused as the
// whole is, never something else.
TEST(FirstCutTest, DamageLooksTheSameInAPart) {
  std::mt19937 random(11);
  std::unique_ptr<CodecState> state;
  Counts counts;
  for (const char* name : {"colour_420.jpg", "colour_444.jpg", "restart.jpg", "grey.jpg"}) {
    const std::vector<uint8_t> clean = Fixture(name);
    for (int i = 0; i < 60; ++i) {
      SCOPED_TRACE(name + (", damage " + std::to_string(i)));
      std::vector<uint8_t> bytes = clean;
      const auto place = [&](size_t from) {
        return std::uniform_int_distribution<size_t>(from, bytes.size() - 3)(random);
      };
      if (i % 3 == 0) {  // cut short, but with an end
        bytes.resize(place(bytes.size() / 3));
        bytes.insert(bytes.end(), {0xFF, 0xD9});
      } else if (i % 3 == 1) {  // other bytes
        for (int k = 0; k < 4; ++k) bytes[place(bytes.size() / 2)] ^= static_cast<uint8_t>(1 + i);
      } else {  // a marker where none belongs
        const size_t at = place(bytes.size() / 2);
        bytes[at] = 0xFF;
        bytes[at + 1] = static_cast<uint8_t>(0xC0 + i);
      }
      CompareParts(bytes, 6, random, state, counts);
      if (HasFatalFailure()) return;
    }
  }
  std::cout << counts.parts << " parts, " << counts.wholes << " decoded whole, " << counts.refused
            << " refused\n";
  EXPECT_GT(counts.parts, 0);
  EXPECT_GT(counts.wholes, 0);
  EXPECT_GT(counts.refused, 0);
}

// A file for which the tables of another one would do must not get them.
TEST(FirstCutTest, NoTableIsLeftFromTheImageBefore) {
  std::unique_ptr<CodecState> state;
  ByteBuffer pixels;
  const DecodeRules rules = {.max_pixels = kMaxPixels, .jpeg = &state};
  const std::vector<uint8_t> whole = Fixture("colour_420.jpg");
  ASSERT_TRUE(DecodeBy(whole, rules, pixels).ok());
  for (const uint8_t marker : {0xDB, 0xC4}) {
    std::vector<uint8_t> without;
    for (size_t i = 0; i < whole.size();) {
      const bool is_table = i + 3 < whole.size() && whole[i] == 0xFF && whole[i + 1] == marker;
      if (is_table) {
        i += size_t{2} + (size_t{whole[i + 2]} << 8 | whole[i + 3]);
      } else {
        without.push_back(whole[i++]);
      }
    }
    ASSERT_LT(without.size(), whole.size());
    const Status kept = DecodeBy(without, rules, pixels).status();
    const Status fresh = DecodeBy(without, {.max_pixels = kMaxPixels}, pixels).status();
    EXPECT_EQ(kept, fresh);
    EXPECT_EQ(kept.ok(), marker == 0xC4);  // without Huffman tables it has the standard ones
    ASSERT_TRUE(DecodeBy(whole, rules, pixels).ok());
  }
}

// The steps one after the other on the whole image.
StatusOr<Image> Stepwise(const std::vector<PlacedStep>& steps, Image image, const ImageRules& rules,
                         const SampleKey& key, ImageMemory& memory) {
  const StepRunner runner(rules, key, memory);
  for (const PlacedStep& step : steps) {
    ASSIGN_OR_RETURN(image, runner.Apply(step, image));
  }
  return image;
}

TEST(FirstCutTest, GivesWhatTheStepsGiveOneAfterTheOther) {
  const auto placed = [](std::vector<ImageStep> steps) {
    std::vector<PlacedStep> result;
    for (ImageStep& step : steps) {
      result.push_back({.place = static_cast<uint32_t>(result.size()),
                        .path = "transform[" + std::to_string(result.size()) + "]",
                        .step = std::move(step),
                        .held = {}});
    }
    return result;
  };
  const auto resize = [](int shorter, Filter filter) {
    step::Resize step;
    step.size = shorter;
    step.filter = filter;
    return step;
  };
  const std::vector<std::vector<PlacedStep>> recipes = {
      placed({step::RandomResizedCrop{.size = {64, 48}}}),
      placed({step::RandomResizedCrop{.size = {64, 48}, .filter = Filter::kNearest}}),
      placed({resize(40, Filter::kBilinear), step::CenterCrop{.size = {32, 32}}}),
      placed({resize(40, Filter::kBicubic), step::RandomCrop{.size = {32, 40}, .padding = {}}}),
      placed({resize(40, Filter::kNearest), step::CenterCrop{.size = {33, 20}}}),
      placed({resize(40, Filter::kBilinear), step::CenterCrop{.size = {64, 32}}}),
      placed({resize(50, Filter::kLanczos)}),
      placed({step::CenterCrop{.size = {20, 20}}}),
      placed({step::RandomCrop{.size = {15, 15}, .padding = {}}}),
      placed({step::RandomCrop{.size = {5000, 5000}, .padding = {}}}),
      placed({step::RandomCrop{.size = {15, 15}, .padding = {.left = 4}}}),
      placed({step::RandomHorizontalFlip{}, step::CenterCrop{.size = {20, 20}}}),
  };
  int compared = 0, parts = 0;
  for (const char* name : {"colour_420.jpg", "colour_444.jpg", "odd.jpg", "tall.jpg", "wide.jpg",
                           "one_pixel.jpg", "progressive.jpg", "large.jpg"}) {
    const std::vector<uint8_t> bytes = Fixture(name);
    for (const Reference reference : {Reference::kPillow12, Reference::kPillow13}) {
      const ImageRules rules = {.reference = reference, .max_pixels = kMaxPixels};
      for (size_t r = 0; r < recipes.size(); ++r) {
        for (uint64_t index = 0; index < 5; ++index) {
          SCOPED_TRACE(name + (", recipe " + std::to_string(r)));
          const SampleKey key = {.seed = 3, .epoch = 1, .index = index};
          ImageMemory memory, plain;
          FirstCut cut(recipes[r], rules, key, memory);
          const StatusOr<Decoded> decoded =
              DecodeBy(bytes, {.max_pixels = kMaxPixels, .parts = &cut}, memory.First());
          ASSERT_TRUE(decoded.ok());
          const StatusOr<Image> whole =
              DecodePixels(bytes, ImageMode::kRgb, kMaxPixels, plain.Next());
          const StatusOr<Image> right = Stepwise(recipes[r], *whole, rules, key, plain);
          const Size size = {whole->height, whole->width};
          cut.Plan(size, 1);
          StatusOr<Image> image = decoded->image;
          if (cut.count() > 0) {
            const Box all = {.height = size.height, .width = size.width};
            image = cut.Apply(*image, decoded->is_part ? decoded->box : all, nullptr);
          }
          ASSERT_TRUE(!decoded->is_part || cut.count() > 0);
          if (image.ok()) {
            const std::vector<PlacedStep> rest(
                recipes[r].begin() + static_cast<ptrdiff_t>(cut.count()), recipes[r].end());
            image = Stepwise(rest, *image, rules, key, memory);
          }
          ASSERT_EQ(image.status(), right.status());
          ASSERT_TRUE(!right.ok() || IsEqual(*image, *right));
          ++compared;
          parts += decoded->is_part ? 1 : 0;
        }
      }
    }
  }
  std::cout << compared << " compared, " << parts << " of them decoded in part\n";
  EXPECT_GT(parts, 100);
}

}  // namespace
}  // namespace loaderd::transform
