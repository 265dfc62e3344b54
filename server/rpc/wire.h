// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "grpcpp/support/status.h"
#include "loaderd/v1/admin.pb.h"
#include "loaderd/v1/loader.pb.h"
#include "server/base/budget.h"
#include "server/base/spec.h"
#include "server/base/status.h"
#include "server/dataset/catalog.h"
#include "server/engine/engine.h"

// The engine's values as messages. Pure.
namespace loaderd::rpc {

// The one mapping of errors: absl's codes are gRPC's; the text is made printable and cut at 4 KiB,
// far below a header limit.
grpc::Status ToGrpc(const Status& status);

v1::Opened ToOpened(const engine::Session& session, bool inline_delivery);
// BadSamples messages (each at most about 64 KiB) and then the BatchRef, or the EpochEnd.
std::vector<v1::SessionResponse> ToResponses(const engine::Delivery& delivery,
                                             uint64_t inline_bytes);
v1::SessionState ToState(const engine::SessionFacts& facts);
v1::DatasetState ToState(const dataset::Catalog::Entry& entry);
v1::BudgetUse ToUse(const Budget& budget);

// The features of this daemon, as Opened names them and Open may ask for them.
const std::vector<std::string>& Features();

}  // namespace loaderd::rpc
