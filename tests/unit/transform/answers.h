// SPDX-License-Identifier: Apache-2.0
// Where the right answers are, and how to compare with them.
#pragma once

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "server/base/spec.h"
#include "server/transform/image.h"

namespace loaderd::transform {

using Json = google::protobuf::Struct;
using JsonValue = google::protobuf::Value;

inline std::filesystem::path Fixtures() {
  return std::filesystem::path(LOADERD_SOURCE_DIR) / "tests/support/fixtures";
}

// The large set of right answers and images beside the source tree, or where LOADERD_SHARED says.
// Not everybody has it.
inline std::filesystem::path Shared() {
  const char* place = std::getenv("LOADERD_SHARED");
  return place != nullptr ? std::filesystem::path(place)
                          : std::filesystem::path(LOADERD_SOURCE_DIR) / "../shared";
}

inline std::vector<uint8_t> ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::vector<uint8_t> Fixture(const std::string& name) {
  return ReadBytes(Fixtures() / name);
}

inline Json ReadJson(const std::filesystem::path& path) {
  const std::vector<uint8_t> bytes = ReadBytes(path);
  Json json;
  const auto status =
      google::protobuf::util::JsonStringToMessage(std::string(bytes.begin(), bytes.end()), &json);
  EXPECT_TRUE(status.ok()) << path << ": " << status.ToString();
  return json;
}

inline const JsonValue& At(const Json& json, const std::string& name) {
  static const JsonValue kNone;
  const auto it = json.fields().find(name);
  return it == json.fields().end() ? kNone : it->second;
}
inline const Json& Object(const Json& json, const std::string& name) {
  return At(json, name).struct_value();
}
inline const auto& List(const Json& json, const std::string& name) {
  return At(json, name).list_value().values();
}
inline const std::string& Text(const Json& json, const std::string& name) {
  return At(json, name).string_value();
}
inline int Number(const Json& json, const std::string& name) {
  return static_cast<int>(At(json, name).number_value());
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  Sha256& Add(std::span<const uint8_t> bytes) {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
    return *this;
  }
  Sha256& Add(const Image& image) {
    for (int y = 0; y < image.height; ++y) Add(std::span(image.Row(y), image.RowBytes()));
    return *this;
  }
  std::string Hex() {
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    std::string hex;
    for (const uint8_t byte : std::span(digest, size)) {
      hex += "0123456789abcdef"[byte >> 4];
      hex += "0123456789abcdef"[byte & 15];
    }
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

inline std::string HashOf(std::span<const uint8_t> bytes) { return Sha256().Add(bytes).Hex(); }
inline std::string HashOf(const Image& image) { return Sha256().Add(image).Hex(); }

inline step::Resize ResizeTo(std::variant<int, Size> size, Filter filter = Filter::kBilinear,
                             std::optional<int> max_size = std::nullopt) {
  return {.size = size, .max_size = max_size, .filter = filter};
}

inline constexpr uint64_t kMaxPixels = 178956970;

}  // namespace loaderd::transform
