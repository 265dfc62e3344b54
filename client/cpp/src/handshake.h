// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "client/cpp/src/channel.h"
#include "client/cpp/src/options.h"
#include "client/cpp/src/patience.h"
#include "client/cpp/src/proto_codec.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

// Moves the call on until a reply is here (*reply), or the call has ended (its outcome, with *reply
// empty).
Status AwaitReply(Channel* channel, const std::string& what, Patience* patience,
                  std::optional<std::string>* reply);

// The open handshake on one connection, up to the first reply that is not Indexing. Where patience
// ends, Await may be called again and goes on where it stood.
class Handshake {
 public:
  // `channel` must outlive it.
  Handshake(Channel* channel, std::string_view job_json, DeliveryWay delivery,
            std::string_view client, std::string_view expected_order_fingerprint);
  // *opened is checked: Layout::Check has found it good.
  Status Await(Patience* patience, Opened* opened);

 private:
  Channel* const channel_;
  const bool inline_;
  std::string what_;
};

}  // namespace loaderd::client
