// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/handshake.h"

#include <utility>
#include <variant>

#include "client/cpp/src/layout.h"
#include "client/cpp/src/text.h"

namespace loaderd::client {

Status AwaitReply(Channel* channel, const std::string& what, Patience* patience,
                  std::optional<std::string>* reply) {
  for (;;) {
    channel->Write();
    channel->Read();
    channel->Write();
    *reply = channel->Take();
    if (reply->has_value()) return Ok();
    if (channel->ended()) return channel->outcome();
    Status waited = patience->Wait(channel->fd(), channel->events(), what);
    if (!waited.ok()) return waited;
  }
}

Handshake::Handshake(Channel* channel, std::string_view job_json, DeliveryWay delivery,
                     std::string_view client, std::string_view expected_order_fingerprint)
    : channel_(channel),
      inline_(delivery == DeliveryWay::kInline),
      what_("waiting for the daemon at " + Printable(channel->socket()) + " to answer") {
  channel_->Begin(kSessionMethod);
  channel_->Send(EncodeOpen(job_json, delivery, client, expected_order_fingerprint));
}

Status Handshake::Await(Patience* patience, Opened* opened) {
  for (;;) {
    std::optional<std::string> message;
    Status status = AwaitReply(channel_, what_, patience, &message);
    if (!status.ok()) return status;
    if (!message.has_value()) {
      return Error(LOADERD_INTERNAL, "the daemon ended the session without opening it");
    }
    patience->Restart();
    Reply reply;
    if (!Decode(*message, &reply)) {
      return Error(LOADERD_INTERNAL, "the daemon's answer to open is no valid message");
    }
    if (const auto* indexing = std::get_if<Indexing>(&reply)) {
      what_ = "indexing the dataset (" + std::to_string(indexing->files) + " files so far)";
    } else if (auto* answer = std::get_if<Opened>(&reply)) {
      *opened = std::move(*answer);
      return Layout::Check(*opened, inline_);
    } else if (!std::holds_alternative<std::monostate>(reply)) {
      return Error(LOADERD_INTERNAL, "the daemon answered to open with something else");
    }
  }
}

}  // namespace loaderd::client
