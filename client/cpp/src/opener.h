// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "client/cpp/src/fork_guard.h"
#include "client/cpp/src/locate.h"
#include "client/cpp/src/options.h"
#include "client/cpp/src/patience.h"
#include "client/cpp/src/proto_codec.h"
#include "client/cpp/src/session.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

// A connection to the daemon at `place`; the user's own is started where none answers.
Status ConnectTo(const Options& options, const Place& place, Patience* patience,
                 std::unique_ptr<GuardedFd>* fd);

// Finds (or starts) the daemon, opens a session for the job and maps its segment. *session has one
// reference, given up by Close or Abandon; *place is where its daemon was found.
Status OpenSession(std::string_view job_json, const Options& options, Session** session,
                   Place* place);

// What a dataset holds; class_names has num_classes names.
Status DescribeDataset(std::string_view dataset_json, const Options& options, DescribeReply* reply);

}  // namespace loaderd::client
