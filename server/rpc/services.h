// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "grpcpp/impl/service_type.h"
#include "server/rpc/front.h"
#include "server/rpc/server.h"

namespace loaderd::rpc {

// The Loader service: each Session call becomes a SessionCall; Describe opens the dataset and
// streams its names.
std::unique_ptr<grpc::Service> MakeLoaderService(Front& front);

// The Admin service. `options` outlives it; its on_drain is called on io's thread.
std::unique_ptr<grpc::Service> MakeAdminService(Front& front, const Server::Options& options);

}  // namespace loaderd::rpc
