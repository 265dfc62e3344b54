// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/base/status.h"

namespace loaderd::dataset {

// libcrypto's SHA-256 (FIPS 180-4), of bytes as they come.
class Sha256 {
 public:
  static constexpr size_t kBytes = 32;

  Sha256()
      : ok_(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1) {}
  void Add(std::string_view bytes) {
    ok_ = ok_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
  }
  // Eight bytes, the lowest first.
  void Add(uint64_t value) {
    char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
    Add(std::string_view(bytes, 8));
  }
  // The digest of kBytes bytes. Once.
  StatusOr<std::string> Finish() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (!ok_ || EVP_DigestFinal_ex(context_.get(), digest, &size) != 1 || size != kBytes) {
      return absl::InternalError("libcrypto made no SHA-256");
    }
    return std::string(reinterpret_cast<const char*>(digest), size);
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_{EVP_MD_CTX_new()};
  bool ok_;
};

}  // namespace loaderd::dataset
