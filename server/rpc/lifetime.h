// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace loaderd::rpc {

// Cancelling a wait does not take back a handler that Asio has queued already as a success: it runs
// after its owner's end. Such a handler holds a Token and does nothing once the Lifetime is over.
// Io's thread only.
class Lifetime {
 public:
  using Token = std::weak_ptr<void>;
  Token token() const { return alive_; }

 private:
  // shared_ptr: what weak_ptr needs; nobody else owns it.
  std::shared_ptr<void> alive_ = std::make_shared<bool>();
};

}  // namespace loaderd::rpc
