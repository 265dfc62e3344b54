// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/opener.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "client/cpp/src/channel.h"
#include "client/cpp/src/handshake.h"
#include "client/cpp/src/locate.h"
#include "client/cpp/src/segment_map.h"
#include "client/cpp/src/spawn.h"
#include "client/cpp/src/text.h"
#include "client/cpp/src/unix_socket.h"

namespace loaderd::client {
namespace {

constexpr size_t kMaxJson = 1u << 20;
constexpr size_t kMaxNames = 256u << 20;  // bytes of class names that a description may have
constexpr int kTries = 3;

Status CheckJson(std::string_view json, const char* what) {
  if (json.size() <= kMaxJson) return Ok();
  return Error(LOADERD_INVALID_ARGUMENT, std::string(what) + " has " + std::to_string(json.size()) +
                                             " bytes of JSON; the limit is " +
                                             std::to_string(kMaxJson));
}

using Talk =
    std::function<Status(const Place& place, std::unique_ptr<GuardedFd> fd, Patience* patience)>;

// One daemon; tried again where it left just as we came.
Status TalkTo(const Options& options, Place place, Patience* patience, const Talk& talk) {
  bool here = false;  // the user's place is one for this mount namespace alone
  for (int tries = 1;; ++tries) {
    std::unique_ptr<GuardedFd> fd;
    Status status = ConnectTo(options, place, patience, &fd);
    if (!status.ok()) return status;
    if (place.origin == Origin::kUser && !here && IsElsewhere(place.socket)) {
      const std::string there = place.socket;
      status = LocateUserHere(&place);
      if (!status.ok()) return status;
      options.Log("the daemon at " + Printable(there) +
                  " is of another mount namespace, where paths lead to other files; going to " +
                  Printable(place.socket));
      here = true;
      continue;
    }
    status = talk(place, std::move(fd), patience);
    const bool may_start = place.origin == Origin::kUser && !options.no_start;
    if (status.code != LOADERD_UNAVAILABLE || !may_start || tries == kTries) return status;
    const Status waited =
        patience->Wait(-1, 0, "waiting for " + Printable(place.socket) + " to be free again");
    if (!waited.ok()) return waited;
  }
}

Status WithDaemon(const Options& options, const Talk& talk) {
  Place place;
  Status status = Locate(options, &place);
  if (!status.ok()) return status;
  Patience patience(options.timeout_ms, options.waiting, options.waiting_arg);
  if (place.origin != Origin::kSystem) return TalkTo(options, place, &patience, talk);
  bool answered = false;
  status = TalkTo(options, place, &patience,
                  [&](const Place& at, std::unique_ptr<GuardedFd> fd, Patience* left) {
                    answered = true;
                    return talk(at, std::move(fd), left);
                  });
  const bool refused =
      status.code == LOADERD_PERMISSION_DENIED || status.code == LOADERD_UNIMPLEMENTED;
  if (!answered || !refused) return status;
  Place user;
  const Status located = LocateUser(&user);
  if (!located.ok()) return status;
  options.Log("the system's daemon at " + Printable(place.socket) + " refused (" + status.text +
              "); going to the user's daemon at " + Printable(user.socket));
  Patience anew(options.timeout_ms, options.waiting, options.waiting_arg);
  return TalkTo(options, user, &anew, talk);
}

Status OpenOn(const Place& place, std::unique_ptr<GuardedFd> fd, std::string_view job_json,
              const Options& options, Patience* patience, Session** session) {
  DeliveryWay delivery =
      options.delivery == LOADERD_INLINE ? DeliveryWay::kInline : DeliveryWay::kMapped;
  for (;;) {
    auto channel = std::make_unique<Channel>(std::move(fd), place.socket);
    Opened opened;
    Status status = Handshake(channel.get(), job_json, delivery, options.client,
                              options.expected_order_fingerprint)
                        .Await(patience, &opened);
    if (!status.ok()) return status;
    std::unique_ptr<SegmentMap> segment;
    if (delivery == DeliveryWay::kMapped) {
      status = SegmentMap::Fetch(SegmentSocketPath(place.socket), opened.segment_token,
                                 opened.segment_bytes, patience, &segment);
    }
    if (status.ok()) {
      *session = new Session(std::move(channel), std::move(segment), std::move(opened));
      return Ok();
    }
    const bool ended = status.code == LOADERD_CANCELLED || status.code == LOADERD_FORKED;
    if (options.delivery != LOADERD_MAPPED_OR_INLINE || ended) return status;
    options.Log("batches will come inline, for the segment cannot be mapped: " + status.text);
    delivery = DeliveryWay::kInline;
    channel.reset();
    patience->Restart();
    status = ConnectTo(options, place, patience, &fd);
    if (!status.ok()) return status;
  }
}

Status DescribeOn(const Place& place, std::unique_ptr<GuardedFd> fd, std::string_view dataset_json,
                  Patience* patience, DescribeReply* reply) {
  Channel channel(std::move(fd), place.socket);
  channel.Begin(kDescribeMethod);
  channel.Send(EncodeDescribe(dataset_json));
  channel.HalfClose();
  *reply = DescribeReply();
  size_t bytes = 0;
  for (bool first = true;; first = false) {
    // The daemon may have to index first, of which this call hears nothing: from its first word on
    // there is no limit.
    while (first && !channel.heard() && !channel.ended()) {
      channel.Write();
      channel.Read();
      if (channel.heard() || channel.ended()) break;
      Status waited =
          patience->Wait(channel.fd(), channel.events(),
                         "waiting for the daemon at " + Printable(place.socket) + " to answer");
      if (!waited.ok()) return waited;
    }
    patience->WaitForever();
    std::optional<std::string> message;
    Status status =
        AwaitReply(&channel, "waiting for the dataset to be indexed", patience, &message);
    if (!status.ok()) return status;
    if (!message.has_value()) break;
    DescribeReply part;
    if (!Decode(*message, &part)) {
      return Error(LOADERD_INTERNAL, "the daemon's description is no valid message");
    }
    bytes += message->size();
    if (bytes > kMaxNames) {
      return Error(LOADERD_RESOURCE_EXHAUSTED,
                   "the dataset's class names have over " + std::to_string(kMaxNames) + " bytes");
    }
    if (first) {
      *reply = std::move(part);
    } else {
      std::move(part.class_names.begin(), part.class_names.end(),
                std::back_inserter(reply->class_names));
    }
  }
  if (reply->class_names.size() != reply->num_classes) {
    return Error(LOADERD_INTERNAL, "the daemon named " + std::to_string(reply->class_names.size()) +
                                       " of " + std::to_string(reply->num_classes) + " classes");
  }
  return Ok();
}

}  // namespace

Status ConnectTo(const Options& options, const Place& place, Patience* patience,
                 std::unique_ptr<GuardedFd>* fd) {
  if (place.origin == Origin::kUser) return ConnectOrStart(options, place.socket, patience, fd);
  int error = 0;
  return Connect(place.socket, patience, fd, &error);
}

Status OpenSession(std::string_view job_json, const Options& options, Session** session,
                   Place* place) {
  Status status = CheckJson(job_json, "the job");
  if (!status.ok()) return status;
  return WithDaemon(options,
                    [&](const Place& at, std::unique_ptr<GuardedFd> fd, Patience* patience) {
                      *place = at;
                      return OpenOn(at, std::move(fd), job_json, options, patience, session);
                    });
}

Status DescribeDataset(std::string_view dataset_json, const Options& options,
                       DescribeReply* reply) {
  Status status = CheckJson(dataset_json, "the dataset");
  if (!status.ok()) return status;
  return WithDaemon(options,
                    [&](const Place& place, std::unique_ptr<GuardedFd> fd, Patience* patience) {
                      return DescribeOn(place, std::move(fd), dataset_json, patience, reply);
                    });
}

}  // namespace loaderd::client
