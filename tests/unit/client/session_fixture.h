// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "loaderd/client.h"
#include "tests/unit/client/fake_daemon.h"
#include "tests/unit/client/temp_folder.h"

namespace loaderd::client {

inline int OpenDescriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// The fake daemon's side, which is in this process too, may still be closing some.
inline int DescriptorsOnceThey(int are) {
  for (int i = 0; i < 400 && OpenDescriptors() != are; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return OpenDescriptors();
}

inline int Threads() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

// A daemon and, by the C interface, a session with it.
class SessionFixture : public testing::Test {
 protected:
  static constexpr std::chrono::milliseconds kSoon{2000};

  ~SessionFixture() override {
    loaderd_close(session_);
    daemon_.reset();
  }

  void StartDaemon(FakeDaemon::Options options = {}) {
    daemon_ = std::make_unique<FakeDaemon>(folder_ / "d.sock", std::move(options));
  }

  loaderd_open_options OpenOptions(loaderd_delivery delivery = LOADERD_MAPPED) {
    socket_ = folder_ / "d.sock";
    loaderd_open_options options = {};
    options.struct_size = sizeof options;
    options.socket = socket_.c_str();
    options.timeout_ms = 10'000;
    options.delivery = delivery;
    options.no_start = 1;
    options.reconnect_ms = reconnect_ms_;
    options.client = "client test";
    options.log = [](const char* line) { log_.push_back(line); };
    return options;
  }

  loaderd_code Open(loaderd_delivery delivery = LOADERD_MAPPED) {
    const loaderd_open_options options = OpenOptions(delivery);
    return loaderd_open(R"({"batch_size": 4})", &options, &session_);
  }

  // A daemon with an open session at the begin of epoch 0.
  void Begin(FakeDaemon::Options options = {}, loaderd_delivery delivery = LOADERD_MAPPED) {
    StartDaemon(std::move(options));
    ASSERT_EQ(Open(delivery), LOADERD_OK) << loaderd_error();
    ASSERT_EQ(loaderd_start_epoch(session_, 0, 0, 0), LOADERD_OK) << loaderd_error();
  }

  // The next batch, which must come.
  const loaderd_batch* Next() {
    const loaderd_batch* batch = nullptr;
    EXPECT_EQ(loaderd_next(session_, 10'000, &batch), LOADERD_OK) << loaderd_error();
    return batch;
  }
  loaderd_code NextCode(int64_t timeout_ms = 10'000) {
    const loaderd_batch* batch = nullptr;
    const loaderd_code code = loaderd_next(session_, timeout_ms, &batch);
    EXPECT_TRUE(code == LOADERD_OK || batch == nullptr);
    loaderd_release(batch);
    return code;
  }

  static inline std::vector<std::string> log_;
  TempFolder folder_;
  std::string socket_;
  int64_t reconnect_ms_ = 0;
  std::unique_ptr<FakeDaemon> daemon_;
  loaderd_session* session_ = nullptr;
};

}  // namespace loaderd::client
