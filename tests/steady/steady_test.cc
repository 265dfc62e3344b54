// SPDX-License-Identifier: Apache-2.0
// What a sample costs once all has grown: no memory is asked for. This binary's malloc counts.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "server/dataset/catalog.h"
#include "tests/support/dataset_builder.h"
#include "tests/unit/engine/front.h"

namespace {
std::atomic<uint64_t> taken = 0;
}  // namespace

// glibc's own names for what these replace.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  ++taken;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  ++taken;
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  ++taken;
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  ++taken;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  *out = memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
}

namespace loaderd::engine {
namespace {

std::string FileOf(const std::string& name) {
  std::ifstream file(std::string(LOADERD_SOURCE_DIR "/tests/support/fixtures/") + name,
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class SteadyTest : public EngineFixture {
 protected:
  static constexpr uint32_t kBatch = 64;

  SteadyTest() {
    const char* const kinds[] = {"colour_420.jpg", "colour_422.jpg", "colour_444.jpg",
                                 "grey.jpg",       "large.jpg",      "restart.jpg"};
    for (int i = 0; i < 256; ++i) {
      builder_.File("class" + std::to_string(i % 3) + "/" + std::to_string(i) + ".jpg",
                    FileOf(kinds[i % 6]));
    }
  }

  // A trainer that reads on and on; what is asked for in `batches` of them, after as many before.
  double TakenForEachSample(const plan::Job& job, int batches) {
    const auto dataset = catalog_.Open({.image_folder = builder_.root(), .name = {}}, {}, nullptr);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    Front front;
    auto session =
        engine->Open(job, *dataset, {.uid = kUid, .pid = 1, .client = "test"}, false, &front);
    EXPECT_TRUE(session.ok()) << session.status();
    uint64_t epoch = 0, before = 0, samples = 0;
    EXPECT_TRUE((*session)->Start(epoch, 0, epoch + 1, true).ok());
    for (int i = 0; i < 2 * batches;) {
      if (i == batches) before = taken;
      EXPECT_TRUE((*session)->Want(1).ok());
      const Delivery delivery = front.Next();
      if (delivery.epoch_end) {
        ++epoch;
        EXPECT_TRUE((*session)->Start(epoch, 0, epoch + 1, true).ok());
        continue;
      }
      EXPECT_EQ(delivery.error, "");
      Release(**session, delivery);
      if (i++ >= batches) samples += delivery.count;
    }
    const uint64_t count = taken - before;
    const std::unique_ptr<SegmentLease> lease = (*session)->Close();
    front.MarkClosed();
    std::cout << count << " allocations for " << samples << " samples\n";
    return static_cast<double>(count) / static_cast<double>(samples);
  }

  DatasetBuilder builder_;
  dataset::Catalog catalog_{{}};
};

plan::Job Training() {
  plan::Job job;
  job.batch_size = 64;
  job.order.kind = plan::OrderKind::kTorchShuffle;
  job.recipe.steps = {step::RandomResizedCrop{.size = {32, 32}}, step::RandomHorizontalFlip{},
                      step::ToTensor{},
                      step::Normalize{.mean = {0.5, 0.5, 0.5}, .std = {0.25, 0.25, 0.25}}};
  return job;
}

// A batch may ask for some; its 64 samples must not.
constexpr double kLessThanOne = 0.1;

TEST_F(SteadyTest, ASampleOfATrainingAsksForNoMemory) {
  EXPECT_LT(TakenForEachSample(Training(), 60), kLessThanOne);
}

TEST_F(SteadyTest, ASampleOfAnEvaluationAsksForNoMemory) {
  plan::Job job = Training();
  job.order.kind = plan::OrderKind::kSequential;
  step::Resize resize;
  resize.size = 36;
  job.recipe.steps[0] = resize;
  job.recipe.steps[1] = step::CenterCrop{.size = {32, 32}};
  EXPECT_LT(TakenForEachSample(job, 60), kLessThanOne);
}

// So is it with steps beside the usual ones.
TEST_F(SteadyTest, ASampleOfManyStepsAsksForNoMemory) {
  plan::Job job = Training();
  std::vector<Step>& steps = job.recipe.steps;
  step::RandAugment augment;
  step::ColorJitter jitter;
  jitter.brightness = step::Interval{0.5, 1.5};
  step::RandomRotation turn;
  turn.degrees = {-30, 30};
  step::GaussianBlur blur;
  blur.kernel = {3, 3};
  steps.insert(steps.begin() + 1, {augment, jitter, blur, step::RandomGrayscale{.p = 0.5}, turn});
  EXPECT_LT(TakenForEachSample(job, 60), kLessThanOne);
}

// The count counts: the first batches do ask.
TEST_F(SteadyTest, TheCountSeesWhatIsAsked) {
  const uint64_t before = taken;
  const std::string text(1000, 'x');
  EXPECT_GT(taken, before);
  EXPECT_EQ(text.size(), 1000u);
}

}  // namespace
}  // namespace loaderd::engine
