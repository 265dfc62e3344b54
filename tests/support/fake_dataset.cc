// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_dataset.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <initializer_list>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace loaderd {
namespace {

void Append(std::vector<uint8_t>& out, std::initializer_list<int> bytes) {
  for (const int byte : bytes) out.push_back(static_cast<uint8_t>(byte));
}

}  // namespace

FakeDataset::FakeDataset(uint64_t size, std::string path) : size_(size), path_(std::move(path)) {}

// One block with nothing but its DC coefficient (ITU-T T.81): quantised by 8 it is the level less
// 128.
std::vector<uint8_t> FakeDataset::Jpeg(uint8_t grey) {
  std::vector<uint8_t> out;
  Append(out, {0xFF, 0xD8, 0xFF, 0xDB, 0, 67, 0});  // SOI, DQT: 64 times 8
  out.insert(out.end(), 64, 8);
  Append(out,
         {0xFF, 0xC0, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0});  // SOF0: 8 bits, 8 x 8, one component
  // DHT: DC categories 0 to 8 as four bits each; for AC the one code "0", end of block.
  Append(out, {0xFF, 0xC4, 0, 28, 0x00, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  Append(out, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  Append(out, {0xFF, 0xC4, 0, 20, 0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  Append(out, {0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0});  // SOS

  const int level = grey - 128;
  const int category = std::bit_width(static_cast<unsigned>(std::abs(level)));
  const int value = level >= 0 ? level : level + (1 << category) - 1;
  uint32_t bits = static_cast<uint32_t>(category << category | value) << 1;  // and the end of block
  int count = 4 + category + 1;
  while (count % 8 != 0) {
    bits = bits << 1 | 1;
    ++count;
  }
  for (count -= 8; count >= 0; count -= 8) {
    out.push_back(static_cast<uint8_t>(bits >> count));
    if (out.back() == 0xFF) out.push_back(0);
  }
  Append(out, {0xFF, 0xD9});
  return out;
}

void FakeDataset::FailRead(uint64_t index, std::string reason) {
  MutexLock lock(mutex_);
  failing_[index] = std::move(reason);
}

void FakeDataset::Corrupt(uint64_t index) {
  MutexLock lock(mutex_);
  corrupt_.insert(index);
}

void FakeDataset::OnRead(std::function<void(uint64_t)> hook) {
  MutexLock lock(mutex_);
  hook_ = std::move(hook);
}

void FakeDataset::Slow(std::chrono::microseconds each) {
  MutexLock lock(mutex_);
  each_ = each;
}

void FakeDataset::Block(uint64_t index) {
  MutexLock lock(mutex_);
  blocked_.insert(index);
}

void FakeDataset::BlockAll() {
  MutexLock lock(mutex_);
  all_blocked_ = true;
}

void FakeDataset::Unblock() {
  MutexLock lock(mutex_);
  all_blocked_ = false;
  blocked_.clear();
  changed_.NotifyAll();
}

bool FakeDataset::WaitForBlocked(int reads) const {
  MutexLock lock(mutex_);
  for (int i = 0; i < 1000 && hanging_ < reads; ++i)
    changed_.WaitFor(mutex_, std::chrono::milliseconds(10));
  return hanging_ >= reads;
}

uint64_t FakeDataset::reads() const {
  MutexLock lock(mutex_);
  return all_reads_;
}

uint64_t FakeDataset::reads(uint64_t index) const {
  MutexLock lock(mutex_);
  const auto it = reads_.find(index);
  return it == reads_.end() ? 0 : it->second;
}

int FakeDataset::most_at_once() const {
  MutexLock lock(mutex_);
  return most_at_once_;
}

std::string FakeDataset::Name(uint64_t index) const {
  return absl::StrCat(path_, "/", index, ".jpg");
}

Status FakeDataset::Read(uint64_t index, ByteBuffer& bytes) const {
  std::function<void(uint64_t)> hook;
  std::chrono::microseconds each;
  Status status;
  bool corrupt = false;
  {
    MutexLock lock(mutex_);
    ++reads_[index];
    ++all_reads_;
    most_at_once_ = std::max(most_at_once_, ++at_once_);
    hook = hook_;
    each = each_;
    const auto failing = failing_.find(index);
    if (failing != failing_.end()) {
      status = absl::DataLossError(absl::StrCat(Name(index), ": ", failing->second));
    }
    corrupt = corrupt_.contains(index);
  }
  if (hook) hook(index);
  if (each.count() > 0) std::this_thread::sleep_for(each);
  {
    MutexLock lock(mutex_);
    if (Hangs(index)) {
      ++hanging_;
      changed_.NotifyAll();
      while (Hangs(index)) changed_.Wait(mutex_);
      --hanging_;
    }
    --at_once_;
  }
  if (!status.ok()) return status;
  std::vector<uint8_t> jpeg = Jpeg(Grey(index));
  if (corrupt) jpeg.assign({'n', 'o', ' ', 'i', 'm', 'a', 'g', 'e'});
  std::ranges::copy(jpeg, bytes.Resize(jpeg.size()).begin());
  return absl::OkStatus();
}

}  // namespace loaderd
