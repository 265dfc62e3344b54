// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace loaderd {

// Where the golden answers and the real images are: LOADERD_SHARED, else `shared` beside the source
// tree. A test that needs them and finds none says so and is counted as skipped.
inline std::string SharedFile(const std::string& relative) {
  const char* folder = std::getenv("LOADERD_SHARED");
  return (folder != nullptr ? std::string(folder) : std::string(LOADERD_SOURCE_DIR "/../shared")) +
         "/" + relative;
}

}  // namespace loaderd
