// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "client/cpp/src/options.h"
#include "client/cpp/src/proto_codec.h"
#include "client/cpp/src/session.h"
#include "client/cpp/src/status.h"

namespace loaderd::client {

// Finds (or starts) the daemon, opens a session for the job and maps its segment. *session has one
// reference, given up by Close.
Status OpenSession(std::string_view job_json, const Options& options, Session** session);

// What a dataset holds; class_names has num_classes names.
Status DescribeDataset(std::string_view dataset_json, const Options& options, DescribeReply* reply);

}  // namespace loaderd::client
