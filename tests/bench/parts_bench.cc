// SPDX-License-Identifier: Apache-2.0
// Times of the parts that a sample passes through, one thread, by Google Benchmark.
//   parts_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/base/byte_buffer.h"
#include "server/base/clock.h"
#include "server/transform/image_decoder.h"
#include "server/transform/recipe.h"
#include "server/transform/resample.h"
#include "server/transform/tensor_table.h"

namespace loaderd::transform {
namespace {

constexpr int kTarget = 224;
constexpr int64_t kTargetPixels = int64_t{kTarget} * kTarget;
constexpr uint64_t kMaxPixels = 1 << 28;

std::vector<uint8_t> Fixture(const std::string& name) {
  std::ifstream file(std::string(LOADERD_SOURCE_DIR "/tests/support/fixtures/") + name,
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Pixels that no pass can guess: a linear congruential sequence.
std::vector<uint8_t> Noise(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = 1;
  for (uint8_t& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

void CountPixels(benchmark::State& state, int64_t pixels) {
  state.SetItemsProcessed(state.iterations() * pixels);
}

void BM_Decode(benchmark::State& state, const char* fixture) {
  const std::vector<uint8_t> file = Fixture(fixture);
  ByteBuffer pixels;
  int64_t count = 0;
  for (auto _ : state) {
    const DecodeDeadline deadline(Clock::Real(), 30000);
    const DecodeRules rules = {.max_pixels = kMaxPixels, .deadline = &deadline};
    auto decoded = DecodeImage(file, rules, pixels);
    if (!decoded.ok()) {
      state.SkipWithError(fixture);
      return;
    }
    count = int64_t{decoded->image.height} * decoded->image.width;
    benchmark::DoNotOptimize(decoded->image.data);
  }
  CountPixels(state, count);
}
BENCHMARK_CAPTURE(BM_Decode, colour_420, "colour_420.jpg");
BENCHMARK_CAPTURE(BM_Decode, colour_444, "colour_444.jpg");
BENCHMARK_CAPTURE(BM_Decode, progressive, "progressive.jpg");
BENCHMARK_CAPTURE(BM_Decode, grey, "grey.jpg");
BENCHMARK_CAPTURE(BM_Decode, large, "large.jpg");

// One axis alone: the other keeps its size, so its pass is left out. Items are source pixels.
void Resample(benchmark::State& state, int width, int height, Size target, Filter filter) {
  const std::vector<uint8_t> noise =
      Noise(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  const Image source = Contiguous(noise.data(), height, width, 3);
  Resampler resampler;
  ByteBuffer out;
  for (auto _ : state) {
    auto resized = resampler.Resize(source, target, filter, Reference::kPillow13, kMaxPixels, out);
    if (!resized.ok()) {
      state.SkipWithError("refused");
      return;
    }
    benchmark::DoNotOptimize(resized->data);
  }
  CountPixels(state, int64_t{width} * height);
}

void BM_ResampleHorizontal(benchmark::State& state) {
  const int edge = static_cast<int>(state.range(0));
  Resample(state, edge, kTarget, {.height = kTarget, .width = kTarget}, Filter::kBilinear);
}
void BM_ResampleVertical(benchmark::State& state) {
  const int edge = static_cast<int>(state.range(0));
  Resample(state, kTarget, edge, {.height = kTarget, .width = kTarget}, Filter::kBilinear);
}
void BM_ResampleBoth(benchmark::State& state) {
  const int edge = static_cast<int>(state.range(0));
  Resample(state, edge, edge, {.height = kTarget, .width = kTarget}, Filter::kBilinear);
}
void BM_ResampleBicubic(benchmark::State& state) {
  const int edge = static_cast<int>(state.range(0));
  Resample(state, edge, edge, {.height = kTarget, .width = kTarget}, Filter::kBicubic);
}
const std::vector<std::vector<int64_t>> kEdges = {{112, 160, 256, 375, 500, 1000, 3000}};
BENCHMARK(BM_ResampleHorizontal)->ArgsProduct(kEdges);
BENCHMARK(BM_ResampleVertical)->ArgsProduct(kEdges);
BENCHMARK(BM_ResampleBoth)->ArgsProduct(kEdges);
BENCHMARK(BM_ResampleBicubic)->Arg(375)->Arg(500);

void BM_TensorTable(benchmark::State& state, DType dtype) {
  TensorTable table(3);
  if (dtype != DType::kUint8) {
    table.ToFloat(dtype);
    if (!table.Normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}).ok()) std::abort();
  }
  const std::vector<uint8_t> noise = Noise(kTargetPixels * 3);
  const Image image = Contiguous(noise.data(), kTarget, kTarget, 3);
  std::vector<uint8_t> out(kTargetPixels * 3 * DTypeBytes(dtype));
  for (auto _ : state) {
    table.Apply(image, out.data());
    benchmark::ClobberMemory();
  }
  CountPixels(state, kTargetPixels);
}
BENCHMARK_CAPTURE(BM_TensorTable, uint8, DType::kUint8);
BENCHMARK_CAPTURE(BM_TensorTable, bfloat16, DType::kBfloat16);
BENCHMARK_CAPTURE(BM_TensorTable, float32, DType::kFloat32);

// A whole sample, as the fleet's threads make it. Items are samples.
void ApplyRecipe(benchmark::State& state, std::vector<Step> steps) {
  const std::vector<uint8_t> file = Fixture("large.jpg");
  RecipeSpec spec;
  spec.steps = std::move(steps);
  auto recipe = Recipe::Compile(spec, Limits());
  if (!recipe.ok() || !(*recipe)->shape()) {
    state.SkipWithError("no recipe of one shape");
    return;
  }
  uint64_t bytes = DTypeBytes((*recipe)->dtype());
  for (const int64_t extent : *(*recipe)->shape()) bytes *= static_cast<uint64_t>(extent);
  std::vector<uint8_t> out(bytes);
  Scratch scratch;
  uint64_t index = 0;
  for (auto _ : state) {
    const SampleKey key = {.seed = 1, .epoch = 0, .index = index++};
    if (!(*recipe)->Apply(file, key, scratch, out).ok()) {
      state.SkipWithError("bad sample");
      return;
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations());
}

std::vector<Step> Normalized(std::vector<Step> steps) {
  steps.emplace_back(step::ToTensor{});
  steps.emplace_back(step::Normalize{.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}});
  return steps;
}
const std::vector<Step> kCrop = {
    step::RandomResizedCrop{.size = {.height = kTarget, .width = kTarget}},
    step::RandomHorizontalFlip{}};
const std::vector<Step> kEval = {step::Resize{.size = 256, .max_size = std::nullopt},
                                 step::CenterCrop{.size = {.height = kTarget, .width = kTarget}}};

void BM_RecipeCropUint8(benchmark::State& state) { ApplyRecipe(state, kCrop); }
void BM_RecipeCropFloat32(benchmark::State& state) { ApplyRecipe(state, Normalized(kCrop)); }
void BM_RecipeEvalFloat32(benchmark::State& state) { ApplyRecipe(state, Normalized(kEval)); }
BENCHMARK(BM_RecipeCropUint8);
BENCHMARK(BM_RecipeCropFloat32);
BENCHMARK(BM_RecipeEvalFloat32);

}  // namespace
}  // namespace loaderd::transform

BENCHMARK_MAIN();
